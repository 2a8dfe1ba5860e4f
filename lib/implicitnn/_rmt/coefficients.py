"""The scalars of the deterministic equivalents: `Coefficients` and the formulas for them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from implicitnn import _validate
from implicitnn._gaussian.bends import cuts
from implicitnn._gaussian.centring import named
from implicitnn.activations import Activation
from implicitnn.errors import UnsupportedSpecError
from implicitnn.gaussian import Function, expectation, stein_moments
from implicitnn.specs import DEQ, ENN

PARAMS = ("published", "all")


@dataclass(frozen=True)
class Coefficients:
    r"""The scalars through which a network enters its equivalents.

    Attributes
    ----------
    tau : float
        Scale of the last pre-activation: :math:`\tau_*`, or :math:`\tau_{L-1}` of L layers.
    gamma2 : float
        :math:`\gamma^2`, diagonal of the conjugate kernel at :math:`|x| = \tau_0`.
    alpha1, alpha2, alpha3 : float
        Weights of X X^T, of the norm fluctuations and of the squared products.
    alpha4 : float
        Derivative of the pre-activation variance in :math:`|x|^2` (explicit: of
        :math:`\gamma^2`).
    kappa2 : float
        :math:`\kappa^2`, diagonal of the tangent kernel at :math:`|x| = \tau_0`.
    beta1, beta2, beta3 : float
        The same weights for the tangent kernel.
    """

    tau: float
    gamma2: float
    alpha1: float
    alpha2: float
    alpha3: float
    alpha4: float
    kappa2: float
    beta1: float
    beta2: float
    beta3: float


def coefficients(spec: DEQ | ENN, params: str = "published") -> Coefficients:
    r"""Return the scalars of the equivalents of a network.

    Write :math:`g_1 = (E\varphi')^2`, :math:`g_2 = (E\varphi'')^2`, :math:`g_4 = E(\varphi^2)''`,
    all at :math:`\tau_*\xi` and taken by Stein's identities, so that kinks do no harm. Narrow
    features of the activation are seen as `DEQ` says. Implicit:

    .. math::
        s_1 &= \frac{\sigma_b^2}{1-\sigma_a^2 g_1}, \quad \alpha_1 = g_1 s_1, \quad
        \alpha_4 = \frac{\sigma_b^2}{1-\sigma_a^2 g_4/2}, \quad
        \alpha_2 = \frac{g_2\alpha_4^2/4}{1-\sigma_a^2 g_1}, \quad
        \alpha_3 = \frac{g_2 s_1^2/2}{1-\sigma_a^2 g_1},\\
        d_0 &= \sigma_a^2 g_1, \quad d_1 = \sigma_a^2 g_2 s_1, \quad
        \beta_1 = \frac{\alpha_1}{1-d_0}, \quad \beta_2 = \frac{\alpha_2}{1-d_0}, \quad
        \beta_3 = \frac{\alpha_3+\beta_1 d_1}{1-d_0}, \quad
        \kappa^2 = \frac{\gamma^2}{1-\sigma_a^2 E\varphi'^2}.

    With ``params="all"`` the input weights count too, which replaces :math:`\alpha_1` by
    :math:`\alpha_1+\sigma_b^2 g_1` in :math:`\beta_1`, :math:`\alpha_3` by
    :math:`\alpha_3+\sigma_b^2 g_2 s_1` in :math:`\beta_3` and :math:`\gamma^2` by
    :math:`\gamma^2+\sigma_b^2\tau_0^2E\varphi'^2` in :math:`\kappa^2`.

    Explicit, layer by layer from :math:`\alpha_1=\alpha_4=\beta_1=1`,
    :math:`\kappa^2=\tau_0^2`, all else zero, old values on the right except :math:`\alpha_i` in
    :math:`\beta_i` and :math:`\gamma^2` in :math:`\kappa^2`:

    .. math::
        \alpha_1 &\leftarrow g_1\alpha_1, \quad
        \alpha_2 \leftarrow g_1\alpha_2 + g_2\alpha_4^2/4, \quad
        \alpha_3 \leftarrow g_1\alpha_3 + g_2\alpha_1^2/2, \quad
        \alpha_4 \leftarrow g_4\alpha_4/2,\\
        \beta_1 &\leftarrow \alpha_1+g_1\beta_1, \quad \beta_2 \leftarrow \alpha_2+g_1\beta_2,
        \quad \beta_3 \leftarrow \alpha_3+g_1\beta_3+g_2\alpha_1\beta_1, \quad
        \kappa^2 \leftarrow \gamma^2+\kappa^2E\sigma'^2.

    Parameters
    ----------
    spec : DEQ or ENN
        A centred network without bias.
    params : {"published", "all"}
        Weights the tangent kernel is taken over. ``"published"``: recurrent weights and readout.
        ``"all"``: the input weights too. For an explicit network it is all weights either way.

    Raises
    ------
    UnsupportedSpecError
        The network has a bias or is not centred.
    ValueError
        Unknown ``params``, or a scalar that overflows.

    References
    ----------
    Implicit: Ling et al. 2024, Theorems 1 and 2; ``params="all"`` derived on the page of
    Theorem 2. Explicit: Gu et al. 2022.

    Examples
    --------
    >>> from implicitnn import activations
    >>> c = coefficients(DEQ(activations.relu, 0.2))
    >>> [round(v, 6) for v in (c.tau, c.gamma2, c.alpha1, c.alpha2, c.alpha3)]
    [0.926566, 0.292624, 0.210526, 0.035957, 0.06919]
    """
    params = _validate.one_of(params, "params", PARAMS)
    check_supported(spec)
    with named(f"the coefficients of {spec!r}"):
        result = _implicit(spec, params) if isinstance(spec, DEQ) else _explicit(spec)
    for name, value in vars(result).items():
        if not math.isfinite(value):
            raise ValueError(f"{name} of {spec!r} is {value}: it leaves float64 at this scale")
    return result


def check_supported(spec: DEQ | ENN) -> None:
    """Refuse a network outside the hypotheses: with a bias, or not centred."""
    if not isinstance(spec, DEQ | ENN):
        raise TypeError(f"spec must be a DEQ or an ENN, got {type(spec).__name__}")
    if not spec.centred:
        raise UnsupportedSpecError("spec.centred must be True: the formulas need E phi = 0")
    if isinstance(spec, DEQ) and spec.sigma_c2 != 0.0:
        raise UnsupportedSpecError(
            f"spec.sigma_c2 must be 0: the formulas are for networks without bias, "
            f"got {spec.sigma_c2}"
        )


@dataclass(frozen=True)
class _Moments:
    """Gaussian moments of one centred activation: E phi^2, g1, g2, g4, E phi'^2."""

    square: float
    g1: float
    g2: float
    g4: float
    slope: float


def _moments(activation: Activation, phi: Function, tau: float) -> _Moments:
    places = cuts(activation, tau)
    m = stein_moments(phi, tau, places)
    slope = expectation(lambda t: activation.df(t) ** 2, tau, places)
    return _Moments(m.square, m.d1**2, m.d2**2, m.square_d2, slope)


def _implicit(spec: DEQ, params: str) -> Coefficients:
    m = _moments(spec.activation, spec.phi, spec.tau)
    d0 = spec.sigma_a2 * m.g1
    s1 = spec.sigma_b2 / (1 - d0)
    alpha4 = spec.sigma_b2 / (1 - spec.sigma_a2 * m.g4 / 2)
    alpha1 = m.g1 * s1
    alpha2 = m.g2 * alpha4**2 / 4 / (1 - d0)
    alpha3 = m.g2 * s1**2 / 2 / (1 - d0)
    # Input weights add sigma_b^2 (x.x') E[phi'phi'], whose expansion in x.x' is g1 + g2 s1 (x.x').
    extra = spec.sigma_b2 if params == "all" else 0.0
    beta1 = (alpha1 + extra * m.g1) / (1 - d0)
    beta3 = (alpha3 + extra * m.g2 * s1 + beta1 * spec.sigma_a2 * m.g2 * s1) / (1 - d0)
    kappa2 = (m.square + extra * spec.tau0**2 * m.slope) / (1 - spec.sigma_a2 * m.slope)
    return Coefficients(
        tau=spec.tau,
        gamma2=m.square,
        alpha1=alpha1,
        alpha2=alpha2,
        alpha3=alpha3,
        alpha4=alpha4,
        kappa2=kappa2,
        beta1=beta1,
        beta2=alpha2 / (1 - d0),
        beta3=beta3,
    )


def _explicit(spec: ENN) -> Coefficients:
    state = Coefficients(
        tau=spec.tau0,
        gamma2=spec.tau0**2,
        alpha1=1.0,
        alpha2=0.0,
        alpha3=0.0,
        alpha4=1.0,
        kappa2=spec.tau0**2,
        beta1=1.0,
        beta2=0.0,
        beta3=0.0,
    )
    for activation, phi, tau in zip(spec.layers, spec.phis, spec.taus[:-1], strict=True):
        state = _next_layer(state, _moments(activation, phi, tau), tau)
    return state


def _next_layer(old: Coefficients, m: _Moments, tau: float) -> Coefficients:
    alpha1 = m.g1 * old.alpha1
    alpha2 = m.g1 * old.alpha2 + m.g2 * old.alpha4**2 / 4
    alpha3 = m.g1 * old.alpha3 + m.g2 * old.alpha1**2 / 2
    return Coefficients(
        tau=tau,
        gamma2=m.square,
        alpha1=alpha1,
        alpha2=alpha2,
        alpha3=alpha3,
        alpha4=m.g4 * old.alpha4 / 2,
        kappa2=m.square + old.kappa2 * m.slope,
        beta1=alpha1 + m.g1 * old.beta1,
        beta2=alpha2 + m.g1 * old.beta2,
        beta3=alpha3 + m.g1 * old.beta3 + m.g2 * old.alpha1 * old.beta1,
    )
