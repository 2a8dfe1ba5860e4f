r"""L-ReLU designs of the conjugate kernel, any depth.

For these layers :math:`k = 1` and :math:`w = (1-u)/(\pi-2)`. With :math:`V_l = u_1\cdots u_l`,
V_0 = 1 and V_L = A, the equations of L layers become

.. math::
    (\pi-2) B = 1 - A, \qquad
    (\pi-2) C = A\sum_{l=1}^{L}\bigl(V_{l-1}^2/V_l - V_{l-1}\bigr).

The first does not depend on the design. The second is jointly convex in V (a sum of quadratics
over linears), so its range is [minimum, 1 - A]: at a corner all layers but one are linear.
The minimum is the chain :math:`u_{l+1} = 2u_l^2/(1+u_l^2)` whose product is A.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate, pairwise

from scipy import optimize

from implicitnn._design.layers import PI_LESS_2, l_relu_of_share
from implicitnn._design.targets import TOLERANCE, Solution, Wanted
from implicitnn.activations import Activation

MAX_LAYERS = 8
_SLACK = 1e-14
_XTOL = 1e-17
_RTOL = 8.9e-16


def solve(wanted: Wanted, layers: int | None) -> Solution:
    """Return the net with this many layers, or with the fewest (two or more) that serve."""
    energy = wanted.first + PI_LESS_2 * wanted.second
    free = abs(energy - 1.0) <= 0.2 * TOLERANCE
    energy = 1.0 if free else energy
    first, third = wanted.first / energy, PI_LESS_2 * wanted.third / energy
    depth = _depth(first, third) if layers is None else layers
    low, high = _range(first, depth)
    misses: list[tuple[str, float]] = []
    if not free:
        misses.append(("gamma2", wanted.value("gamma2", energy)))
    if not low - _SLACK <= third <= high + _SLACK:
        nearest = energy * min(max(third, low), high) / PI_LESS_2
        misses.append(("alpha3", wanted.value("alpha3", nearest)))
    third = min(max(third, low), high)
    branches = _branches(first, third, depth)
    nets = [_build(shares, energy * wanted.energy, wanted.tau0) for shares in branches]
    reason = "; ".join(_reason(name, depth, third >= high) for name, _ in misses)
    return Solution(nets[0], tuple(misses), reason, others=tuple(nets[1:]))


def _reason(name: str, depth: int, above: bool) -> str:
    if name == "gamma2":
        return (
            "L-ReLU layers of any number force gamma2 = tau0^2 alpha1 + 2(pi-2) tau0^4 alpha2, "
            "which only positively homogeneous activations satisfy in general"
        )
    if above:
        return "L-ReLU layers of any number force alpha3 <= 2 alpha2"
    return f"{depth} L-ReLU layer{'s' * (depth > 1)} cannot make alpha3 that small beside alpha1"


def _depth(first: float, third: float) -> int:
    for depth in range(2, MAX_LAYERS + 1):
        low, high = _range(first, depth)
        if low - _SLACK <= third or third > high + _SLACK:
            return depth
    return MAX_LAYERS


def _range(first: float, depth: int) -> tuple[float, float]:
    """Smallest and largest value of (pi - 2) C."""
    if depth == 1:
        return 1.0 - first, 1.0 - first
    return _third(_lowest(first, depth)), 1.0 - first


def _third(shares: list[float]) -> float:
    """(pi - 2) C from u_1..u_L; no division, so that u = 0 is allowed."""
    total, before = 0.0, 1.0
    for number, u in enumerate(shares):
        total += math.prod(shares[number + 1 :]) * (1.0 - u) * before**2
        before *= u
    return total


def _chain(u: float, depth: int) -> list[float]:
    return list(accumulate(range(depth - 1), lambda v, _: 2.0 * v * v / (1.0 + v * v), initial=u))


def _lowest(first: float, depth: int) -> list[float]:
    """Shares at the minimum of the third equation; the product of the chain increases with u_1."""
    if first <= 0.0:
        return [0.0] * depth
    if first >= 1.0:
        return [1.0] * depth
    u = _root(lambda x: math.prod(_chain(x, depth)) - first, first, 1.0)
    return _chain(u, depth)


def _branches(first: float, third: float, depth: int) -> list[list[float]]:
    """One root on each of two paths from the minimum to a corner, geometric in V."""
    if depth == 1 or not 0.0 < first < 1.0:
        return [[first]] if depth == 1 else _even(first, third, depth)
    middle = list(accumulate(_lowest(first, depth)[:-1], lambda v, u: v * u))
    branches = []
    for corner in (first, 1.0):
        at = _line(middle, corner, first)

        def excess(s: float, at: Callable[[float], list[float]] = at) -> float:
            return float(_third(at(s)) - third)

        s = 0.0 if excess(0.0) >= 0.0 else 1.0 if excess(1.0) <= 0.0 else _root(excess, 0.0, 1.0)
        branches.append(at(s))
    return branches[:1] if branches[0] == branches[1] else branches


def _even(first: float, third: float, depth: int) -> list[list[float]]:
    """A = 0 or 1: all layers but two are linear, or all are."""
    if first >= 1.0:
        return [[1.0] * depth]
    rest = [1.0] * (depth - 2)
    return [[0.0, third, *rest], [math.sqrt(third), 0.0, *rest]]


def _line(middle: list[float], corner: float, first: float) -> Callable[[float], list[float]]:
    def shares(s: float) -> list[float]:
        products = [v ** (1.0 - s) * corner**s for v in middle]
        return [min(b / a, 1.0) for a, b in pairwise([1.0, *products, first])]

    return shares


def _root(f: Callable[[float], float], low: float, high: float) -> float:
    """Root of a function with opposite signs at the ends (a zero at an end is returned)."""
    for end in (low, high):
        if f(end) == 0.0:
            return end
    return float(optimize.brentq(f, low, high, xtol=_XTOL, rtol=_RTOL))


def _build(shares: list[float], energy: float, tau0: float) -> tuple[Activation, ...]:
    """All layers but the last keep the variance tau0^2."""
    energies = [tau0**2] * (len(shares) - 1) + [energy]
    return tuple(l_relu_of_share(u, e, tau0) for u, e in zip(shares, energies, strict=True))
