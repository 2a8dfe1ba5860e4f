"""Two Hermite layers: solutions, and the nearest net where there is none."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import optimize

from implicitnn._design import single as _design_single
from implicitnn._design.cubic import (
    Curve,
    System,
    choose,
    complete,
    layers_of,
    pick,
    quadratic_layers,
    quadratic_points,
    system,
)
from implicitnn._design.layers import hermite_of_shares
from implicitnn._design.targets import TOLERANCE, Solution, Wanted
from implicitnn.activations import Activation, linear

_SQRT6 = math.sqrt(6.0)


def solve_cubic(wanted: Wanted, layers: int) -> Solution:
    """Two cubic layers, or more.

    An odd target needs one layer; the others are the identity. Beyond two layers, the third is the
    identity for the tangent kernel, where its weights count; for the conjugate kernel all layers
    but the last are odd.
    """
    if layers > 1 and wanted.odd and not wanted.hidden:
        single, before = _design_single.solve_cubic(wanted), (linear,) * (layers - 1)
        others = tuple(before + net for net in single.others)
        return replace(single, layers=before + single.layers, others=others)
    if layers == 2:
        return _cubic(wanted, _weights(wanted, None), None)
    if not wanted.hidden:
        return _chain(wanted, layers)
    found = [_cubic(wanted, _weights(wanted, place), place) for place in range(3)]
    return min(found, key=lambda s: (not s.exact, len(s.misses)))


def _chain(wanted: Wanted, layers: int) -> Solution:
    """Equal odd layers before the last one, so that (k/u)^(L-1) is the level wanted.

    With U the product of their shares, the last layer has :math:`u_L = A/U` and
    :math:`w_L = C/U^2`.
    """
    count = layers - 1
    level = max((wanted.second / wanted.third) ** (0.5 / count), 0.5)
    c = 1.0 - level
    s = -2.0 * c / (_SQRT6 + math.sqrt(6.0 - 12.0 * c))
    u = 1.0 / (1.0 + s * s)
    third = wanted.second / level ** (2 * count)
    linear, even = wanted.first / u**count, third / u ** (2 * count)
    misses, reasons = [], []
    if abs(third - wanted.third) > 0.1 * TOLERANCE * wanted.third:
        misses.append((wanted.names[2], wanted.value(wanted.names[2], third)))
        reasons.append(f"k >= u/2 in each layer forces alpha3 <= {2 * 4**count} alpha2")
    proved = bool(misses)
    rest = 1.0 - linear - even
    if rest < -1e-14:
        misses.append((wanted.names[3], wanted.value(wanted.names[3], linear + even)))
        reasons.append("the other three need more energy than gamma2 has")
    top, tau0 = linear + even + max(rest, 0.0), wanted.tau0
    odd = hermite_of_shares(u, 0.0, math.copysign(s * s * u, s), tau0**2, tau0)
    last = (linear / top, even / top, max(rest, 0.0) / top)
    ends = _design_single.both_signs(*last, top * wanted.energy, tau0)
    first, *others = [(odd,) * count + (end,) for end in ends]
    return Solution(first, tuple(misses), "; ".join(reasons), proved, tuple(others))


def _weights(wanted: Wanted, place: int | None) -> tuple[int, int, int]:
    """Multipliers of W_1, W_2, readout, when identity number ``place`` is merged into them.

    An identity before layer 1 comes with a matrix of its own, which acts as W_1 does, and W_1 is
    then hidden; the other two merge in the same way.
    """
    weights = [wanted.input_weights, wanted.hidden, 1]
    if place is not None:
        weights[place] += wanted.hidden
    return weights[0], weights[1], weights[2]


def _cubic(wanted: Wanted, weights: tuple[int, int, int], place: int | None) -> Solution:
    misses: list[tuple[str, float]] = []
    reasons: list[str] = []
    q = system(wanted, weights)
    found = choose(q)
    if found is None:
        third = 4.0 * q.last * q.second / q.readout * (1.0 - 1e-15)
        misses.append((wanted.names[2], wanted.value(wanted.names[2], third)))
        factor = 8 * q.last // q.readout
        reasons.append(
            f"k_1 >= u_1/2 in any cubic layer, which forces {wanted.names[2]} <= {factor} "
            f"{wanted.names[1]} for two of them"
        )
        found = choose(replace(q, third=third))
    if found is None:
        raise RuntimeError(f"no first layer reaches the level of {wanted!r}")
    points, enough = found
    if not enough:
        name = wanted.names[3]
        misses.append((name, wanted.value(name, _least_energy(points, wanted, weights))))
        reasons.append(f"the other three need more energy than {name} has")
        points = replace(points, energy=points.p + points.r)
    signs = (1.0, -1.0) if points.slack[0] > 0.0 and points.p[0] > 0.0 else (1.0,)
    first, *others = [_insert(layers_of(points, 0, wanted, sign), place) for sign in signs]
    proved = wanted.hidden == 0 and any(name == wanted.names[2] for name, _ in misses)
    return Solution(first, tuple(misses), "; ".join(reasons), proved, tuple(others))


def _least_energy(points: Curve, wanted: Wanted, weights: tuple[int, int, int]) -> float:
    """kappa^2 (or gamma^2) of the point without a third coefficient in the last layer."""
    u = 1.0 / (1.0 + points.ratio[0] + points.s[0] ** 2)
    e = u * (1.0 + 2.0 * points.ratio[0] + 3.0 * points.s[0] ** 2)
    gain = weights[1] + weights[0] * e
    p, r = float(points.p[0]), float(points.r[0])
    return float(weights[2] * (p + r) + (p + 2.0 * r) * gain)


def _insert(pair: tuple[Activation, Activation], place: int | None) -> tuple[Activation, ...]:
    layers = list(pair)
    if place is not None:
        layers.insert(place, linear)
    return tuple(layers)


def solve_quadratic(wanted: Wanted) -> Solution:
    """Two quadratic layers: three equations, and what is left of the energy is the miss."""
    weights = _weights(wanted, None)
    q = system(wanted, weights)
    misses: list[tuple[str, float]] = []
    points = quadratic_points(q)
    reasons = []
    if not points.ratio.size:
        points, third = _nearest_third(q)
        misses.append((wanted.names[2], wanted.value(wanted.names[2], third)))
        reasons.append("two quadratic layers do not reach " + wanted.names[2])
    index = int(np.argmin(np.abs(points.slack)))
    chosen = pick(points, index)
    top = _least_energy(chosen, wanted, weights)
    if abs(top - 1.0) > 0.1 * TOLERANCE:
        name = wanted.names[3]
        misses.append((name, wanted.value(name, top)))
        reasons.append("four equations meet three unknowns: scaling layer 1 is undone by layer 2")
    others = tuple(
        quadratic_layers(points, i, wanted) for i in range(points.ratio.size) if i != index
    )
    return Solution(
        quadratic_layers(chosen, 0, wanted), tuple(misses), "; ".join(reasons), others=others
    )


def _nearest_third(q: System) -> tuple[Curve, float]:
    """Hold the first two equations and bring the third as near as possible.

    From the second equation :math:`r u_1^2 = (X - m P R)/(q (1 + 2R)^2)`, so the third is a
    function of R alone.
    """

    def third(ratio: float) -> float:
        rest = (q.second - q.even * q.head * ratio) / (q.readout * (1.0 + 2.0 * ratio) ** 2)
        return q.bend * q.head * ratio + q.last * rest

    top = q.second / (q.even * q.head) if q.head > 0.0 else 10.0
    grid = np.linspace(0.0, top, 201)
    gap = np.abs(np.array([third(x) for x in grid]) - q.third)
    index = int(np.argmin(gap))
    low, high = grid[max(index - 1, 0)], grid[min(index + 1, 200)]
    found = optimize.minimize_scalar(
        lambda x: abs(third(x) - q.third), bounds=(low, high), options={"xatol": 1e-14}
    )
    ratio = float(found.x) if found.fun < gap[index] else float(grid[index])
    nearest = third(ratio)
    return complete(replace(q, third=nearest), np.array([ratio]), np.zeros(1)), nearest
