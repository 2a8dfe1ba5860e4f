r"""One-layer designs: H-Tanh and the cubic.

With multipliers lambda for W_1 and 1 for the readout, :math:`\Lambda = 1 + \lambda`, one layer of
output energy T has

.. math::
    b_1\tau_0^2 = \Lambda T u, \quad 2 b_2\tau_0^4 = T w, \quad
    b_3\tau_0^4 = (1 + 2\lambda) T w, \quad \kappa^2 = T (1 + \lambda e).

A clip a clip(t, -c, c) fed with standard deviation tau has, with :math:`y = c/(\sqrt2\,\tau)`,

.. math::
    m = E\sigma^2/(a\tau)^2 = P(3/2, y^2) + 2y^2\operatorname{erfc}(y), \qquad
    u = \operatorname{erf}(y)^2/m, \qquad e = \operatorname{erf}(y)/m,

P the regularised incomplete gamma function. u rises from :math:`2/\pi` to 1 with y, and e falls.
"""

from __future__ import annotations

import math

from scipy import optimize, special

from implicitnn._design.layers import hermite_of_shares
from implicitnn._design.targets import ODD, TOLERANCE, Solution, Wanted
from implicitnn.activations import Activation, hard_tanh

_LOW, _HIGH = 1e-4, 8.0


def solve_hard_tanh(wanted: Wanted) -> Solution:
    r"""One clipped layer; :math:`\Lambda u/(1 + \lambda e)` increases with y, so y is unique."""
    misses, reasons = [], []
    if not wanted.odd:
        shares = {wanted.names[1]: wanted.second, wanted.names[2]: wanted.third}
        misses = [(name, 0.0) for name, share in shares.items() if share > ODD]
        reasons = ["one odd layer has no even part"]
    weight = wanted.input_weights
    low, high = (_balance(y, weight) for y in (_LOW, _HIGH))
    target = min(max(wanted.first, low), high)
    if abs(target - wanted.first) > 0.1 * TOLERANCE:
        misses.insert(0, (wanted.names[0], wanted.value(wanted.names[0], target)))
        bound = "pi/2" if not weight else f"{1.0 / low:.3g}"
        reasons.append(f"one clip has 1 <= {wanted.names[3]}/(tau0^2 {wanted.names[0]}) <= {bound}")
    y = _LOW if target <= low else _HIGH if target >= high else _place(target, weight)
    return Solution((_clip(y, target, wanted),), tuple(misses), "; ".join(reasons))


def clip_energy(y: float) -> float:
    """E sigma^2/(a tau)^2."""
    return float(special.gammainc(1.5, y * y) + 2.0 * y * y * special.erfc(y))


def _balance(y: float, weight: int) -> float:
    middle, energy = math.erf(y), clip_energy(y)
    return (1 + weight) * middle**2 / (energy + weight * middle)


def _place(target: float, weight: int) -> float:
    def excess(y: float) -> float:
        return _balance(y, weight) - target

    return float(optimize.brentq(excess, _LOW, _HIGH, xtol=1e-17, rtol=8.9e-16))


def _clip(y: float, target: float, wanted: Wanted) -> Activation:
    """Slope from the first equation."""
    linear = target * wanted.energy / (1 + wanted.input_weights)
    a = math.sqrt(linear) / (wanted.tau0 * math.erf(y))
    return hard_tanh(a, y * math.sqrt(2.0) * wanted.tau0)


def solve_cubic(wanted: Wanted) -> Solution:
    """One cubic layer: the third equation must agree with the second, the rest is linear."""
    weight = wanted.input_weights
    linear, even = wanted.first / (1 + weight), 0.0 if wanted.odd else wanted.second
    energy = (1.0 + weight * (2.0 * linear + even)) / (1.0 + 3.0 * weight)
    rest = energy - linear - even
    misses, reasons = [], []
    third = (1 + 2 * weight) * even
    if abs(third - wanted.third) > 0.1 * TOLERANCE * max(wanted.third, 1e-4) and not wanted.odd:
        misses.append((wanted.names[2], wanted.value(wanted.names[2], third)))
        factor = 2 * (1 + 2 * weight)
        reasons.append(f"one layer forces {wanted.names[2]} = {factor} {wanted.names[1]}")
    if rest < -0.1 * TOLERANCE:
        top = (linear + even) * (1.0 + weight) + weight * even
        misses.append((wanted.names[3], wanted.value(wanted.names[3], top)))
        reasons.append("the linear and the even part already need more energy")
    rest, energy = max(rest, 0.0), max(energy, linear + even)
    shares = (linear / energy, even / energy, rest / energy)
    nets = both_signs(*shares, energy * wanted.energy, wanted.tau0)
    first, *others = [(layer,) for layer in nets]
    return Solution(first, tuple(misses), "; ".join(reasons), others=tuple(others))


def both_signs(u: float, w: float, v: float, energy: float, tau: float) -> list[Activation]:
    """Return a last layer with c_3 >= 0 and, where it differs, the one with c_3 < 0.

    No equation sees this sign. Without a linear part the two are mirror images of each other.
    """
    signs = (1.0, -1.0) if v > 0.0 and u > 0.0 else (1.0,)
    return [hermite_of_shares(u, w, math.copysign(v, sign), energy, tau) for sign in signs]
