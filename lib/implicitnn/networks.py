r"""Networks of finite width in PyTorch: the equilibrium layer, explicit nets, random features.

At initialisation they are the networks whose limits `kernels` computes: weights i.i.d. N(0, 1) as
parameters, every factor :math:`m^{-1/2}`, :math:`\sigma_a`, :math:`\sigma_b` in the forward pass,
activations centred by the constants of the spec. With the same seed and width they have the same
weights as the simulators of `simulate`. Needs the extra ``torch``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn._networks import jacobian as _jacobian
from implicitnn._networks.arrays import numbers
from implicitnn._networks.backend import BACKENDS, choose
from implicitnn._networks.jacobian import SpectralRadius
from implicitnn._networks.layer import root
from implicitnn._networks.nets import ExplicitNet, ImplicitNet, NotConvergedError
from implicitnn._networks.nets import slopes as _slopes
from implicitnn._networks.training import History, train
from implicitnn.design import Match
from implicitnn.solvers import Report, Status
from implicitnn.specs import DEQ, ENN

__all__ = [
    "BACKENDS",
    "ExplicitNet",
    "Features",
    "History",
    "ImplicitNet",
    "NotConvergedError",
    "SpectralRadius",
    "build",
    "features",
    "jacobian_penalty",
    "spectral_radius",
    "train",
]

Tensor: TypeAlias = torch.Tensor

Net: TypeAlias = ImplicitNet | ExplicitNet


def build(
    spec: DEQ | ENN | Match,
    inputs: int,
    width: int,
    outputs: int = 1,
    rng: np.random.Generator | int = 0,
    *,
    dtype: torch.dtype = torch.float32,
    rtol: float | None = None,
    backend: str = "auto",
) -> Net:
    """Return the network of a spec: an `ImplicitNet` for a DEQ, else an `ExplicitNet`.

    Samples that do not converge are counted. rtol is the tolerance of the equilibria, that of
    `ImplicitNet` by default; an explicit net has none to find. backend is where products run, one
    of BACKENDS.

    Examples
    --------
    >>> from implicitnn.activations import tanh
    >>> type(build(ENN((tanh,)), 3, 10)).__name__
    'ExplicitNet'
    """
    if isinstance(spec, DEQ):
        return ImplicitNet(
            spec, inputs, width, outputs, rng, dtype=dtype, rtol=rtol, backend=backend,
            on_failure="count",
        )  # fmt: skip
    return ExplicitNet(spec, inputs, width, outputs, rng, dtype=dtype, backend=backend)


@dataclass(frozen=True, eq=False)
class Features:
    """Random features of samples, and how their equilibria were found.

    Attributes
    ----------
    value : (n, width) array; value @ value.T converges to the conjugate kernel.
    counts : number of samples with each outcome; empty for an explicit net.
    residual : (n,) root mean square of the last change; zero for an explicit net.
    steps : (n,) evaluations of the recurrent map for each sample.
    """

    value: NDArray[np.floating]
    counts: dict[Status, int]
    residual: NDArray[np.float64]
    steps: NDArray[np.int64]

    @property
    def not_converged(self) -> int:
        """How many samples have no equilibrium to the tolerance."""
        return sum(n for status, n in self.counts.items() if status != Status.CONVERGED)


def features(
    spec: DEQ | ENN | Match | Net,
    X: ArrayLike,
    width: int | None = None,
    rng: np.random.Generator | int = 0,
    *,
    block: int = 1024,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
) -> Features:
    r"""Last hidden states of one random network, (n, width), block by block.

    Scaled so that :math:`FF^T` converges to the conjugate kernel as the width grows. The same seed
    gives the network of `simulate.features`, rounded to dtype. Beside the result, memory is one
    copy of the weights and a few blocks: n = 60,000 at m = 8,192 takes 2 GB for the result and less
    than 1 GB beside it in float32.

    Parameters
    ----------
    spec : DEQ, ENN, Match, ImplicitNet or ExplicitNet
        A spec draws a new network; a network is used as it is, with its own tolerances, dtype and
        device.
    X : (n, p) array
        Samples in rows.
    width : int
        m; not given for a network.
    rng : numpy.random.Generator or int
        Source of the weights that a spec draws.
    block : int
        Samples at a time.
    dtype, device
        Of the arithmetic with a spec. The result is a numpy array of the network's type.

    Raises
    ------
    TypeError, ValueError
        spec is none of these, or width is given for a network or missing for a spec.

    Examples
    --------
    >>> from implicitnn.activations import tanh
    >>> F = features(DEQ(tanh, 0.2), np.eye(3), width=400, rng=0)
    >>> F.value.shape, F.not_converged
    ((3, 400), 0)
    """
    given = isinstance(spec, ImplicitNet | ExplicitNet)
    if given == (width is not None):
        raise ValueError("width must be given for a spec, and only for a spec")
    rows = numbers(X, "X")
    if isinstance(spec, ImplicitNet | ExplicitNet):
        net: Net = spec
    else:
        if not isinstance(spec, DEQ | ENN | Match):
            raise TypeError(f"spec must be a DEQ, an ENN or a Match, got {type(spec).__name__}")
        net = build(spec, rows.shape[1], width or 1, 1, rng, dtype=dtype)
        net.to(device)
    return _blocks(net, rows, _validate.integer(block, "block", 1))


def spectral_radius(
    net: ImplicitNet,
    x: ArrayLike,
    method: str = "arnoldi",
    *,
    tol: float = 1e-3,
    rng: np.random.Generator | int = 0,
) -> SpectralRadius:
    r"""Spectral radius of the Jacobian :math:`J_i = \sigma_a m^{-1/2}\,diag\,\phi'(h_i)\,A`.

    Below one, plain iteration converges near the equilibrium of sample i. For i.i.d. weights it
    tends to :math:`\sigma_a\sqrt{E\phi'^2}`, whose square is ``spec.contraction.covariance``.

    Parameters
    ----------
    net : ImplicitNet
    x : (n, p) array
        Samples in rows; each has its own Jacobian.
    method : {"arnoldi", "power", "exact"}
        "arnoldi": the largest Ritz value (scipy's ARPACK). ``error`` is the relative residual
        :math:`|Jv-\lambda v|/|\lambda|`: a backward error, :math:`\lambda` is an eigenvalue of a
        matrix this near. "power": growth of a random vector over 30 products after 10, all samples
        at once; ``error`` is half the spread over its last ten steps. "exact": all eigenvalues, for
        small widths; error zero up to rounding.
    tol : float
        Relative tolerance of the Arnoldi iteration.
    rng : numpy.random.Generator or int
        Start vectors.

    Raises
    ------
    ValueError : unknown method.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> net = ImplicitNet(DEQ(relu, 0.2), 5, 200, rng=0)
    >>> found = spectral_radius(net, np.ones((1, 5)), "exact")
    >>> bool(0.28 < found.value[0] < 0.36), round(DEQ(relu, 0.2).contraction.covariance ** 0.5, 3)
    (True, 0.316)
    """
    _require_implicit(net)
    _validate.one_of(method, "method", _jacobian.METHODS)
    tol, generator = _validate.positive(tol, "tol"), _validate.generator(rng)
    with torch.no_grad():
        slope = _slopes_now(net, _tensor(numbers(x, "x"), net.A))
    matrix = math.sqrt(net.spec.sigma_a2) * net.A.detach().cpu().double().numpy()
    return _jacobian.spectral_radius(slope, matrix, method, tol, generator)


def jacobian_penalty(
    net: ImplicitNet, x: Tensor, z: Tensor, rng: np.random.Generator | int, probes: int = 1
) -> Tensor:
    r"""Mean squared Frobenius norm of the Jacobians, :math:`\frac1{nm}\sum_i\|J_i\|_F^2`.

    Hutchinson's estimate :math:`E|J_i^Tv|^2`, v of independent signs. Differentiable with respect
    to A, B and c; z is held fixed, as in Bai et al. Unbiased; the variance falls as 1/probes.

    Parameters
    ----------
    net : ImplicitNet
    x : (n, p) tensor
    z : (n, m) tensor
        Equilibria, as ``net.features(x)`` returns them.
    rng : numpy.random.Generator or int
        Signs of the probes.
    probes : int

    References
    ----------
    Bai, Koltun and Kolter 2021, "Stabilizing Equilibrium Models by Jacobian Regularization".

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> net, x = ImplicitNet(DEQ(relu, 0.2), 5, 64, rng=0), torch.ones(2, 5)
    >>> jacobian_penalty(net, x, net.features(x), rng=0).backward()
    >>> net.A.grad.shape
    torch.Size([64, 64])
    """
    _require_implicit(net)
    generator = _validate.generator(rng)
    slope = _slopes(net, x, z.detach())
    weighted = math.sqrt(net.spec.sigma_a2) * net.A
    total = slope.new_zeros(())
    for _ in range(_validate.integer(probes, "probes", 1)):
        signs = 2.0 * generator.integers(0, 2, size=tuple(slope.shape)) - 1.0
        v = torch.as_tensor(signs, dtype=slope.dtype, device=slope.device)
        total = total + ((v * slope) @ weighted).square().mean()
    return total / probes


def _require_implicit(net: object) -> None:
    if not isinstance(net, ImplicitNet):
        raise TypeError(f"net must be an ImplicitNet, got {type(net).__name__}")


def _slopes_now(net: ImplicitNet, x: Tensor) -> NDArray[np.float64]:
    """m^{-1/2} phi'(h) at the equilibria, in the network's own backend."""
    backend = choose(net.backend, x)
    z = net.features(x)
    h = math.sqrt(net.spec.sigma_a2) * backend.product(backend.native(z), backend.native(net.A).T)
    h += backend.native(net.drive(x))
    slope = backend.tensor(backend.slope(net.spec.activation, root(net.width), h)).cpu().double()
    # A slope can be finite where the preactivation is not.
    lost = ~torch.isfinite(backend.tensor(h)).all(dim=1).cpu()
    return np.asarray(slope.masked_fill(lost[:, None], torch.nan).numpy())


def _tensor(rows: NDArray[np.generic], like: Tensor) -> Tensor:
    """A copy of its own, in the dtype of another: rows may be of any width and byte order."""
    dtype = np.float32 if like.dtype == torch.float32 else np.float64
    with np.errstate(over="ignore"):
        return torch.from_numpy(np.array(rows, dtype=dtype, order="C")).to(like.device, like.dtype)


def _blocks(net: Net, rows: NDArray[np.generic], block: int) -> Features:
    """Evaluate a network on blocks of samples, into one array."""
    some = net.a
    n = len(rows)
    out = torch.empty((n, net.width), dtype=some.dtype, device="cpu")
    residual, steps = np.zeros(n), np.zeros(n, np.int64)
    counts: dict[Status, int] = {}
    with torch.no_grad():
        for start in range(0, n, block):
            part = slice(start, start + block)
            out[part] = net.features(_tensor(rows[part], some))
            report = net.log.forward if isinstance(net, ImplicitNet) else None
            if report is not None:
                residual[part], steps[part] = report.residual, report.steps
                _add(counts, report)
    return Features(out.numpy(), counts, residual, steps)


def _add(counts: dict[Status, int], report: Report) -> None:
    for status, number in report.counts.items():
        counts[status] = counts.get(status, 0) + number
