r"""Which of several exact designs is nearest: the first terms that the four scalars leave open.

With :math:`\chi_i = |x_i|^2 - \tau_0^2` the conjugate kernel of a centred network is, off the
diagonal and on it,

.. math::
    G_{ij} &= \alpha_1 s + \alpha_2\chi_i\chi_j + \alpha_3 s^2 + G_{1s}(\chi_i + \chi_j)s
        + \tfrac12 G_{112}(\chi_i^2\chi_j + \chi_i\chi_j^2) + \dots, \\
    G_{ii} &= \gamma^2 + \Gamma'\chi_i + \dots .

In high dimension the terms with :math:`G_{1s}` and :math:`\Gamma'` are matrices of norm
:math:`O(\sqrt{\log n/n})`, and the one with :math:`G_{112}` has norm :math:`O(n^{-1/2})`; of the
other cubic terms, :math:`s^3` is :math:`O(1/n)` and :math:`\chi_i s^2`, of norm
:math:`O(n^{-1/2})`, is left out. Positively homogeneous networks have :math:`G_{1s} = 0`, and
:math:`\Gamma'` and the factor of :math:`\chi_i s^2` follow from the scalars: two of them with the
same scalars first differ in :math:`G_{112}`.

With :math:`\mu_k = E\phi^{(k)}`, D the variance map and V the variance of the pre-activation, one
layer maps the derivatives of its input covariance L by

.. math::
    G_{1s} &= \mu_1^2L_{1s} + \tfrac12\mu_1\mu_3V'L_s, \qquad
    G_{12} = \mu_1^2L_{12} + \tfrac14\mu_2^2V'^2, \qquad \Gamma' = D'V', \\
    G_{112} &= \mu_1^2L_{112} + \tfrac18\mu_2\mu_4V'^3 + \tfrac14\mu_2^2V'V''
        + \mu_1\mu_3V'L_{12},

and a DEQ is the fixed point of this map with :math:`L = \sigma_a^2G + \sigma_b^2s`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from implicitnn import gaussian
from implicitnn._gaussian.bends import cuts
from implicitnn._validate import FloatArray
from implicitnn.activations import Activation
from implicitnn.specs import DEQ, ENN

SAME = 1e-9


@dataclass(frozen=True)
class Next:
    r"""The open coefficients of a network.

    cross : :math:`G_{1s}` or, for the tangent kernel, :math:`K_{1s}`; diagonal : derivative of the
    diagonal in the squared norm; norms : :math:`G_{112}/2`, 0 for the tangent kernel, where it is
    not used.
    """

    cross: float
    diagonal: float
    norms: float = 0.0

    def misses(self, other: Next, tau0: float) -> tuple[float, float]:
        r"""Return the mismatch of order :math:`\sqrt{\log n/n}` and that of order n^(-1/2).

        Both are brought to the scale of the energy; the cross term stands in two places.
        """
        first = 2.0 * tau0**4 * abs(self.cross - other.cross)
        first += tau0**2 * abs(self.diagonal - other.diagonal)
        return first, tau0**6 * abs(self.norms - other.norms)


@dataclass(frozen=True)
class _Layer:
    """mu_1..mu_4 of a centred layer, two derivatives of its variance map, E phi'^2 and its own."""

    mu: FloatArray
    slope: float
    bend: float
    square_slope: float
    square_slope_rise: float

    @property
    def product(self) -> float:
        """Derivative of the kernel in the covariance, :math:`mu_1^2`."""
        return float(self.mu[0] ** 2)

    @property
    def mixed(self) -> float:
        """Its derivative in one variance."""
        return float(self.mu[0] * self.mu[2] / 2.0)


def _layer(activation: Activation, phi: gaussian.Function, tau: float) -> _Layer:
    def derivatives(f: gaussian.Function) -> FloatArray:
        """E f and the expectations of its first four derivatives, by Stein's identities."""
        found = gaussian.hermite_coefficients(f, tau**2, 4, cuts(activation, tau))
        return np.asarray(found * np.sqrt([1.0, 1.0, 2.0, 6.0, 24.0]) / tau ** np.arange(5))

    square = derivatives(lambda t: phi(t) ** 2) / [1.0, 1.0, 2.0, 1.0, 4.0]
    slope = derivatives(lambda t: activation.df(t) ** 2) / [1.0, 1.0, 2.0, 1.0, 4.0]
    numbers = map(float, (square[2], square[4], slope[0], slope[2]))
    return _Layer(derivatives(phi)[1:], *numbers)


def _norm_terms(layer: _Layer, v1: float, v2: float, l12: float) -> tuple[float, float]:
    """What one layer adds to G_12 and G_112, at V', V'' and L_12."""
    _, second, _, fourth = map(float, layer.mu)
    own = second**2 / 4.0
    cubic = second * fourth / 8.0 * v1**3 + own * v1 * v2 + 2.0 * layer.mixed * v1 * l12
    return own * v1**2, cubic


def of_deq(deq: DEQ, params: str | None) -> Next:
    """Return the coefficients of a DEQ; params None for the conjugate kernel."""
    layer = _layer(deq.activation, deq.phi, deq.tau)
    a, b = deq.sigma_a2, deq.sigma_b2
    v1 = b / (1.0 - a * layer.slope)
    gain = 1.0 / (1.0 - a * layer.product)
    cross = gain * layer.mixed * v1 * b * gain
    if params is not None:
        return _tangent_deq(deq, layer, v1, cross, b if params == "all" else 0.0)
    v2 = a * layer.bend * v1**2 / (1.0 - a * layer.slope)
    # L_12 is sigma_a^2 G_12, and G_12 itself contains it.
    g12 = gain * _norm_terms(layer, v1, v2, 0.0)[0]
    g112 = gain * _norm_terms(layer, v1, v2, a * g12)[1]
    return Next(cross, layer.slope * v1, g112 / 2.0)


def _tangent_deq(deq: DEQ, layer: _Layer, v1: float, cross: float, extra: float) -> Next:
    r"""Differentiate (G + c s D)/(1 - sigma_a^2 D), D = E phi'(u)phi'(v), c = ``extra``."""
    a, s2 = deq.sigma_a2, layer.square_slope
    gain, whole = 1.0 / (1.0 - a * layer.product), 1.0 / (1.0 - a * s2)
    rise, bend = layer.square_slope_rise * v1, layer.mixed * v1
    product = layer.product * (deq.sigma_b2 * gain + extra)
    energy = deq.gamma2 + extra * deq.tau0**2 * s2
    growth = layer.slope * v1 + extra * (s2 + deq.tau0**2 * rise)
    cross = gain * (cross + extra * bend) + product * a * gain**2 * bend
    return Next(cross, whole * growth + energy * a * whole**2 * rise)


def of_enn(enn: ENN, params: str | None) -> Next:
    """Return the coefficients of an explicit net; params None for the conjugate kernel."""
    v1, v2, s, s1, l12, l112 = 1.0, 0.0, 1.0, 0.0, 0.0, 0.0
    k1, trained = 0.0, float(params == "all")
    k, d, d1 = trained, trained * enn.tau0**2, trained
    for activation, phi, tau, after in zip(
        enn.layers, enn.phis, enn.taus[:-1], enn.taus[1:], strict=True
    ):
        layer = _layer(activation, phi, tau)
        pair, cubic = _norm_terms(layer, v1, v2, l12)
        bend, product = layer.mixed * v1, layer.product
        d1 = layer.slope * v1 + d1 * layer.square_slope + d * layer.square_slope_rise * v1
        d = after**2 + d * layer.square_slope
        s1, s = s1 * product + s * bend, s * product
        k1, k = s1 + k1 * product + k * bend, s + k * product
        l112, l12 = product * l112 + cubic, product * l12 + pair
        v1, v2 = layer.slope * v1, layer.bend * v1**2 + layer.slope * v2
    return Next(s1, v1, l112 / 2.0) if params is None else Next(k1, d1)


def order(
    deq: DEQ, nets: Sequence[tuple[Activation, ...]], params: str | None
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    r"""Return the places of the nets, nearest first, and the mismatch that decided, in that order.

    What decides is the mismatch of order :math:`\sqrt{\log n/n}`; where the nets agree in it, that
    of order n^(-1/2); where they agree in this too, the order stays.
    """
    own = of_deq(deq, params)
    found = [of_enn(ENN(net, deq.tau0), params).misses(own, deq.tau0) for net in nets]
    for term in zip(*found, strict=True):
        if max(term) - min(term) > SAME * deq.gamma2:
            places = tuple(sorted(range(len(nets)), key=lambda place: term[place]))
            return places, tuple(term[place] for place in places)
    return tuple(range(len(nets))), ()
