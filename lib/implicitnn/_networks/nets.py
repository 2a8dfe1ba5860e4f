r"""The modules: the equilibrium layer and the explicit net, with their parameters."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch

from implicitnn import _validate
from implicitnn._networks.backend import BACKENDS, choose
from implicitnn._networks.draw import normal
from implicitnn._networks.elementwise import torch_form
from implicitnn._networks.layer import (
    Log,
    Options,
    Recurrence,
    default_rtol,
    dense,
    equilibrium,
    product,
    root,
)
from implicitnn.design import Match
from implicitnn.solvers import NotConvergedWarning, Picard, Report, Solver
from implicitnn.specs import DEQ, ENN

Tensor = torch.Tensor
ON_FAILURE = ("warn", "raise", "count")


class NotConvergedError(RuntimeError):
    """Samples of a batch have no equilibrium, where that was declared an error."""


class ImplicitNet(torch.nn.Module):
    r"""A DEQ of finite width: :math:`z = m^{-1/2}\phi(\sigma_a Az + \sigma_b Bx + \sigma_c c)`.

    The output is :math:`f(x) = a^Tz^*`. Gradients come from the implicit function theorem: with
    :math:`s = m^{-1/2}\phi'(h)` and :math:`g = \partial L/\partial z^*`,

    .. math::
        \lambda = g + \sigma_a A^T(s\circ\lambda), \qquad
        \frac{\partial L}{\partial A} = \sigma_a\,(s\circ\lambda)\,z^{*T},

    one fixed point forward and one backward. The layer keeps :math:`z^*` and s, two numbers for
    each unit and sample, whatever the number of iterations.

    Parameters
    ----------
    spec : DEQ
        Variances, activation and centring.
    inputs, width, outputs : int
        p, m and the number of outputs.
    rng : numpy.random.Generator or int
        Source of the weights, drawn in the order A, B, c (if there is a bias), a.
    solver : Picard, Anderson or Broyden
        Picard() by default, near optimal for random weights.
    rtol, atol, max_steps
        As in `solvers.solve`, for both solves; rtol is 1e-6 in float32 and 1e-10 in float64, that
        of the weights' dtype at the time.
    backend : {"auto", "numpy", "torch"}
        Who multiplies on the CPU; "auto" takes the faster BLAS. Elsewhere torch does.
    on_failure : {"warn", "raise", "count"}
        What happens when samples do not converge. They are counted in any case.
    dtype : torch.float32 or torch.float64

    Attributes
    ----------
    A, B, c, a : parameters (m, m), (m, p), (m,) or None, (outputs, m), N(0, 1) at the start.
    log : ``forward`` and ``backward``, reports of the last solves, and ``totals``, counts of
        solves, of samples, of those not converged, and of iterations, since the module was made.

    Raises
    ------
    NotImplementedError
        A second derivative was asked for (``create_graph=True``).
    NotConvergedError
        Samples fail and on_failure is "raise".

    References
    ----------
    Bai, Kolter and Koltun 2019 for the implicit gradient; the scaling is that of Ling et al. 2024.

    Examples
    --------
    >>> from implicitnn.activations import relu
    >>> net = ImplicitNet(DEQ(relu, 0.2), inputs=5, width=64, outputs=2, rng=0)
    >>> y = net(torch.ones(3, 5))
    >>> y.shape, net.log.forward.status.value
    (torch.Size([3, 2]), 'converged')
    >>> y.sum().backward()
    >>> net.A.grad.shape, net.log.totals["backward_not_converged"]
    (torch.Size([64, 64]), 0)
    """

    def __init__(
        self,
        spec: DEQ,
        inputs: int,
        width: int,
        outputs: int = 1,
        rng: np.random.Generator | int = 0,
        *,
        solver: Solver | None = None,
        rtol: float | None = None,
        atol: float = 0.0,
        max_steps: int = 200,
        backend: str = "auto",
        on_failure: str = "warn",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if not isinstance(spec, DEQ):
            raise TypeError(f"spec must be a DEQ, got {type(spec).__name__}")
        self.spec = spec
        self.width = _validate.integer(width, "width", 1)
        self.backend = _validate.one_of(backend, "backend", BACKENDS)
        self.on_failure = _validate.one_of(on_failure, "on_failure", ON_FAILURE)
        default_rtol(dtype)
        self.options = Options(Picard() if solver is None else solver, rtol, atol, max_steps)
        p, k = _validate.integer(inputs, "inputs", 1), _validate.integer(outputs, "outputs", 1)
        rng, m = _validate.generator(rng), self.width
        self.A = torch.nn.Parameter(normal(rng, m, m, dtype))
        self.B = torch.nn.Parameter(normal(rng, m, p, dtype))
        bias = normal(rng, 1, m, dtype)[0] if spec.sigma_c2 else None
        self.c = None if bias is None else torch.nn.Parameter(bias)
        self.a = torch.nn.Parameter(normal(rng, k, m, dtype))
        self.log = Log(on_failure=self._failed)

    def drive(self, x: Tensor) -> Tensor:
        r"""What does not change in the iteration, :math:`\sigma_b Bx + \sigma_c c`, (n, m)."""
        _require_rows(x, self.B)
        weight = math.sqrt(self.spec.sigma_b2)
        u = product(x, self.B, choose(self.backend, x), weight)
        return u if self.c is None else u + math.sqrt(self.spec.sigma_c2) * self.c

    def features(self, x: Tensor, z0: Tensor | None = None) -> Tensor:
        """Equilibrium z*, (n, width), for samples in rows; z0 is where the iteration starts.

        Without z0 it starts at the image of zero, which needs no product. No gradient flows to z0.
        """
        drive = self.drive(x)
        if z0 is not None:
            require_state(z0, drive, "z0")
        return equilibrium(drive, self.A, z0, self.recurrence(x), self.options, self.log)

    def recurrence(self, x: Tensor) -> Recurrence:
        """The iterated map, in the backend for a tensor."""
        spec = self.spec
        backend, weight = choose(self.backend, x), math.sqrt(spec.sigma_a2)
        return Recurrence(backend, spec.activation, root(self.width), weight, spec.offset)

    def forward(self, x: Tensor, z0: Tensor | None = None) -> Tensor:
        """Outputs a^T z*, (n, outputs)."""
        return _readout(self.features(x, z0), self.a, self.backend)

    def _failed(self, report: Report, direction: str) -> None:
        if self.on_failure == "count":
            return
        worst = report.status
        text = (
            f"{direction} solve: {report.not_converged} of {len(report.codes)} samples did not "
            f"converge ({worst}). {worst.explanation}"
        )
        if self.on_failure == "raise":
            raise NotConvergedError(text)
        warnings.warn(text, NotConvergedWarning, stacklevel=4)


class ExplicitNet(torch.nn.Module):
    r"""An explicit net of finite width: :math:`x_l = m^{-1/2}\sigma_l(W_lx_{l-1})`, readout a.

    Parameters
    ----------
    source : ENN or Match
        The layers, or a design that holds them.
    inputs, width, outputs, rng, backend, dtype
        As in `ImplicitNet`; drawn in the order W_1 .. W_L, a.

    Attributes
    ----------
    W : list of parameters (m, p), (m, m), ...
    a : parameter (outputs, m).

    Examples
    --------
    >>> from implicitnn import design
    >>> from implicitnn.activations import relu
    >>> match = design.match(DEQ(relu, 0.2), "leaky_relu")
    >>> net = ExplicitNet(match, inputs=5, width=64, outputs=2, rng=0)
    >>> net(torch.ones(3, 5)).shape, len(net.W)
    (torch.Size([3, 2]), 2)
    """

    def __init__(
        self,
        source: ENN | Match,
        inputs: int,
        width: int,
        outputs: int = 1,
        rng: np.random.Generator | int = 0,
        *,
        backend: str = "auto",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        spec = source.enn if isinstance(source, Match) else source
        if not isinstance(spec, ENN):
            raise TypeError(f"source must be an ENN or a Match, got {type(source).__name__}")
        default_rtol(dtype)
        self.spec = spec
        self.width = _validate.integer(width, "width", 1)
        self.backend = _validate.one_of(backend, "backend", BACKENDS)
        sizes = [_validate.integer(inputs, "inputs", 1)] + [self.width] * len(spec.layers)
        outputs, rng = _validate.integer(outputs, "outputs", 1), _validate.generator(rng)
        self.W = torch.nn.ParameterList(
            [normal(rng, self.width, columns, dtype) for columns in sizes[:-1]]
        )
        self.a = torch.nn.Parameter(normal(rng, outputs, self.width, dtype))

    def features(self, x: Tensor) -> Tensor:
        """Last hidden state, (n, width), for samples in rows."""
        _require_rows(x, self.W[0])
        backend, scale = choose(self.backend, x), root(self.width)
        for phi, weight in zip(self.spec.phis, self.W, strict=True):
            x = dense(x, weight, backend, phi.activation, scale, phi.offset)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Outputs a^T x_L, (n, outputs)."""
        return _readout(self.features(x), self.a, self.backend)


def slopes(net: ImplicitNet, x: Tensor, z: Tensor) -> Tensor:
    """m^{-1/2} phi'(h) at an equilibrium, as a differentiable expression of A, B and c."""
    _require_rows(x, net.B)
    require_state(z, x.new_empty((len(x), net.width)), "z")
    h = math.sqrt(net.spec.sigma_a2) * (z @ net.A.T) + math.sqrt(net.spec.sigma_b2) * (x @ net.B.T)
    if net.c is not None:
        h = h + math.sqrt(net.spec.sigma_c2) * net.c
    return torch_form(net.spec.activation).df(h) * root(net.width)


def _readout(z: Tensor, a: Tensor, backend: str) -> Tensor:
    return product(z, a, choose(backend, z))


def require_state(z: Tensor, like: Tensor, name: str) -> None:
    """Refuse what is not a tensor of the shape, dtype and device of another one."""
    if not isinstance(z, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(z).__name__}")
    if (z.shape, z.dtype, z.device) != (like.shape, like.dtype, like.device):
        raise ValueError(
            f"{name} must be {tuple(like.shape)}, {like.dtype} on {like.device}, "
            f"got {tuple(z.shape)}, {z.dtype} on {z.device}"
        )


def _require_rows(x: Tensor, weights: Tensor) -> None:
    p = weights.shape[1]
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor, got {type(x).__name__}")
    if x.dim() != 2 or x.shape[1] != p or not len(x):
        raise ValueError(f"x must be (n, {p}), none empty, got {tuple(x.shape)}")
    if x.dtype != weights.dtype or x.device != weights.device:
        raise ValueError(
            f"x must be {weights.dtype} on {weights.device} as the weights are, "
            f"got {x.dtype} on {x.device}"
        )
