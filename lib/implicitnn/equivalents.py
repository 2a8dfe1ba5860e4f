r"""Deterministic equivalents of the kernels of implicit and explicit networks.

On a high-dimensional Gaussian mixture both kernels come close, in spectral norm, to

.. math::
    \bar G = \alpha_1 X X^T + V C^* V^T + (\gamma^2 - \tau_0^2\alpha_1) I, \qquad
    C^* = \begin{pmatrix}\alpha_2 t t^T + \alpha_3 T & \alpha_2 t\\ \alpha_2 t^T & \alpha_2
    \end{pmatrix},

and the same with :math:`\beta_1, \beta_2, \beta_3, \kappa^2` for the tangent kernel: the network
enters through a few scalars, the data through :math:`\tau_0, t, T, \psi`.
"""

from __future__ import annotations

import numpy as np

from implicitnn import _validate
from implicitnn._rmt.coefficients import Coefficients, check_supported, coefficients
from implicitnn._rmt.lowrank import LowRankPlusDiagonal
from implicitnn._rmt.samples import Sample, Statistics
from implicitnn._validate import FloatArray
from implicitnn.errors import ScaleMismatchError
from implicitnn.specs import DEQ, ENN

__all__ = [
    "Coefficients",
    "LowRankPlusDiagonal",
    "ck",
    "ck_operator",
    "coefficients",
    "ntk",
    "ntk_operator",
]

FORMULAS = ("corrected", "published", "published-diagonal", "published-centring")
_SCALE_TOLERANCE = 1e-8


def ck_operator(
    spec: DEQ | ENN, sample: Sample, *, formula: str = "corrected"
) -> LowRankPlusDiagonal:
    """Return the equivalent of the conjugate kernel as an operator of memory O(n (p + K)).

    Parameters, errors and source: as `ck`.

    Examples
    --------
    >>> from implicitnn import activations, mixtures
    >>> sample = mixtures.benchmark(100).sample(80, 0)
    >>> spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    >>> operator = ck_operator(spec, sample)
    >>> bool(np.allclose(operator @ np.ones(80), ck(spec, sample) @ np.ones(80)))
    True
    """
    _check_sample(spec, sample)
    c = coefficients(spec)
    return _equivalent(sample, spec.tau0, (c.alpha1, c.alpha2, c.alpha3), c.gamma2, formula)


def ntk_operator(
    spec: DEQ | ENN, sample: Sample, *, params: str = "published", formula: str = "corrected"
) -> LowRankPlusDiagonal:
    """Return the equivalent of the tangent kernel as an operator of memory O(n (p + K)).

    Parameters, errors and source: as `ntk`.

    Examples
    --------
    >>> from implicitnn import activations, mixtures
    >>> sample = mixtures.benchmark(100).sample(80, 0)
    >>> spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    >>> ntk_operator(spec, sample, params="all").shape
    (80, 80)
    """
    _check_sample(spec, sample)
    c = coefficients(spec, params)
    return _equivalent(sample, spec.tau0, (c.beta1, c.beta2, c.beta3), c.kappa2, formula)


def ck(spec: DEQ | ENN, sample: Sample, *, formula: str = "corrected") -> FloatArray:
    r"""Return the deterministic equivalent of the conjugate kernel, (n, n).

    .. math:: \bar G = \alpha_1 X X^T + V C^* V^T + (\gamma^2 - \tau_0^2\alpha_1) I.

    Parameters
    ----------
    spec : DEQ or ENN
        A centred network without bias, centred for the scale of the sample:
        ``spec.at(sample.statistics.tau0)``.
    sample : Sample
        Data with statistics, from a mixture or from `mixtures.empirical`.
    formula : {"corrected", "published", "published-diagonal", "published-centring"}
        ``"published-diagonal"`` subtracts :math:`\tau_0^4\alpha_3` from the diagonal, as Gu et al.
        do; ``"published-centring"`` centres T,
        :math:`\operatorname{tr}((C_a-C_0)(C_b-C_0))/p`, as the authors' code does;
        ``"published"`` does both. Each leaves an error that does not vanish.

    Returns
    -------
    (n, n) array
        Exactly symmetric, float64.

    Raises
    ------
    ScaleMismatchError
        spec.tau0 and the sample's tau0 differ by more than 1e-8 relative.
    UnsupportedSpecError
        The network has a bias or is not centred.
    ValueError
        Unknown ``formula``.

    References
    ----------
    Ling et al. 2024, Theorem 1; Gu et al. 2022 for explicit networks.

    Examples
    --------
    >>> from implicitnn import activations, mixtures
    >>> sample = mixtures.benchmark(100).sample(80, 0)
    >>> spec = DEQ(activations.tanh, 0.2).at(sample.statistics.tau0)
    >>> ck(spec, sample).shape
    (80, 80)
    """
    return ck_operator(spec, sample, formula=formula).todense()


def ntk(
    spec: DEQ | ENN, sample: Sample, *, params: str = "published", formula: str = "corrected"
) -> FloatArray:
    r"""Return the deterministic equivalent of the tangent kernel, (n, n).

    .. math:: \bar K = \beta_1 X X^T + V D^* V^T + (\kappa^2 - \tau_0^2\beta_1) I,

    :math:`D^*` as :math:`C^*` with :math:`\beta` for :math:`\alpha`.

    Parameters
    ----------
    spec, sample, formula
        As in `ck`; the extra diagonal term is here :math:`\tau_0^4\beta_3`.
    params : {"published", "all"}
        As in `coefficients`.

    Returns
    -------
    (n, n) array
        Exactly symmetric, float64.

    Raises
    ------
    ScaleMismatchError, UnsupportedSpecError, ValueError
        As in `ck`.

    References
    ----------
    Ling et al. 2024, Theorem 2; Gu et al. 2022 for explicit networks.

    Examples
    --------
    >>> from implicitnn import activations, mixtures
    >>> sample = mixtures.benchmark(100).sample(80, 0)
    >>> spec = DEQ(activations.tanh, 0.2).at(sample.statistics.tau0)
    >>> bool((ntk(spec, sample).diagonal() > ck(spec, sample).diagonal()).all())
    True
    """
    return ntk_operator(spec, sample, params=params, formula=formula).todense()


@np.errstate(under="ignore")
def _equivalent(
    sample: Sample,
    tau0: float,
    weights: tuple[float, float, float],
    diagonal: float,
    formula: str,
) -> LowRankPlusDiagonal:
    formula = _validate.one_of(formula, "formula", FORMULAS)
    s = sample.statistics
    first, second, third = weights
    T = _centred(s) if formula in ("published", "published-centring") else s.T
    shift = diagonal - tau0**2 * first
    if formula in ("published", "published-diagonal"):
        shift -= tau0**4 * third
    return LowRankPlusDiagonal(shift, first, sample.X, s.V, _core(second, third, s.t, T))


def _core(second: float, third: float, t: FloatArray, T: FloatArray) -> FloatArray:
    """C* = [[a2 t t^T + a3 T, a2 t], [a2 t^T, a2]], (K + 1, K + 1)."""
    u = np.append(t, 1.0)
    core = second * np.outer(u, u)
    core[:-1, :-1] += third * T
    return core


def _centred(s: Statistics) -> FloatArray:
    """tr((C_a - C_0)(C_b - C_0))/p, from T and the class fractions."""
    mean = s.T @ s.weights
    return np.asarray(s.T - mean[:, None] - mean[None, :] + s.weights @ mean)


def _check_sample(spec: DEQ | ENN, sample: Sample) -> None:
    check_supported(spec)
    if not isinstance(sample, Sample):
        raise TypeError(f"sample must be a Sample, got {type(sample).__name__}")
    tau0 = sample.statistics.tau0
    if abs(spec.tau0 - tau0) > _SCALE_TOLERANCE * tau0:
        raise ScaleMismatchError(
            f"spec.tau0 = {spec.tau0!r} but the sample has tau0 = {tau0!r}; "
            "use spec.at(sample.statistics.tau0)"
        )
