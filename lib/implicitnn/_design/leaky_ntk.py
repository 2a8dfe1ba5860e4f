r"""L-ReLU designs of the tangent kernel: two layers (one equation too many) and three.

With :math:`c = \pi - 2`, shares x, y, z of layers 1, 2, 3, W_1 counted l times (0 or 1) and
:math:`\Lambda = 3 + l`,

.. math::
    b_1\tau_0^2 &= \Lambda T x y z, \\
    2 c\, b_2\tau_0^4 &= T\,(1 + z + y z - 3 x y z), \\
    c\, b_3\tau_0^4 &= T\,[(3+2l)(1-x) y z + (4+2l)(1-y) z x^2 + (5+2l)(1-z) x^2 y^2], \\
    \kappa^2 &= T\,[1 + e_3(1 + e_2(1 + l e_1))], \qquad e = (\pi - 2u)/c .

The first two give T and x; the last is then a quadratic equation for y; the third is scanned over
z, and each change of sign is bracketed and refined. Two layers: one variable less, so the
first three equations give a cubic in y, and the last is left over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from scipy import optimize

from implicitnn._design.layers import PI_LESS_2, l_relu_of_share
from implicitnn._design.targets import SMALLEST_UNIT, Solution, Wanted
from implicitnn._validate import FloatArray
from implicitnn.activations import Activation

_GRID = np.concatenate([np.geomspace(1e-3, 0.05, 60, endpoint=False), np.linspace(0.05, 1.0, 600)])
_GRID = np.append(_GRID, 1.0 + 1e-9)

Shares = Callable[[FloatArray], FloatArray]


def solve(wanted: Wanted, layers: int) -> Solution:
    """Return the solutions of a scan over the last share, or the nearest point it met."""
    if layers == 2:
        return _solve_two(wanted)
    grid = _grid(wanted)
    curves = [partial(_three, wanted, sign) for sign in (1.0, -1.0)]
    roots = [root for curve in curves for root in _roots(curve, wanted, grid)]
    found = [root for root in roots if not np.isnan(_inside(root[:, None])).any()]
    if not found:
        reason = "a scan over all L-ReLU nets of three layers finds no root of the four equations"
        return _nearest(wanted, [_inside(curve(grid)) for curve in curves], reason)
    nets = [_build(wanted, np.minimum(root, 1.0)) for root in found]
    return Solution(nets[0], others=tuple(nets[1:]))


def _solve_two(wanted: Wanted) -> Solution:
    """Return the root of the first three equations that is nearest in the last."""
    found = _two_roots(wanted)
    if not found:
        reason = "the first three equations of two L-ReLU layers have no root"
        return _nearest(wanted, [_two(wanted, _GRID)], reason)
    found.sort(key=lambda root: abs(float(numbers(wanted, root)[2]) - 1.0))
    nets = [_build(wanted, root) for root in found]
    misses = _energy_miss(wanted, found[0])
    reason = "four equations meet the three unknowns of two L-ReLU layers" if misses else ""
    return Solution(nets[0], misses, reason, others=tuple(nets[1:]))


def _nearest(wanted: Wanted, curves: Sequence[FloatArray], reason: str) -> Solution:
    """Hold the other equations and take the point of the scan nearest in the third.

    Where they cannot be held, the sum of the squares of all misses is minimised.
    """
    points = np.concatenate(curves, axis=1)
    depth = len(points)
    points = points[:, ~np.isnan(points).any(axis=0)]
    if points.size:
        third = numbers(wanted, points)[1]
        best = points[:, int(np.argmin(np.abs(third - wanted.third)))]
    else:
        best = _least_squares(wanted, depth)
    proved = depth == 2
    return Solution(_build(wanted, best), _all_misses(wanted, best), reason, proved)


def _least_squares(wanted: Wanted, depth: int) -> FloatArray:
    """From the best point of a coarse grid of shares."""

    def misfit(shares: FloatArray) -> FloatArray:
        total, third, energy = numbers(wanted, shares)
        second = total * _second(shares) / PI_LESS_2
        floor = SMALLEST_UNIT
        return np.stack(
            [
                (second - wanted.second) / max(wanted.second, floor),
                (third - wanted.third) / max(wanted.third, floor),
                energy - 1.0,
            ]
        )

    grid = np.stack(np.meshgrid(*[np.linspace(0.05, 0.999, 16)] * depth)).reshape(depth, -1)
    start = grid[:, int(np.argmin((misfit(grid) ** 2).sum(axis=0)))]
    found = optimize.least_squares(misfit, start, bounds=(1e-6, 1.0), xtol=1e-14, ftol=1e-14)
    return np.asarray(found.x)


def _all_misses(wanted: Wanted, shares: FloatArray) -> tuple[tuple[str, float], ...]:
    total, third, energy = (float(value) for value in numbers(wanted, shares))
    second = total * float(_second(shares)) / PI_LESS_2
    rows = zip(
        wanted.names[1:],
        (second, third, energy),
        (wanted.second, wanted.third, 1.0),
        strict=True,
    )
    return tuple(
        (name, wanted.value(name, value)) for name, value, aim in rows if abs(value - aim) > 1e-9
    )


def _energy_miss(wanted: Wanted, shares: FloatArray) -> tuple[tuple[str, float], ...]:
    energy = float(numbers(wanted, shares)[2])
    name = wanted.names[3]
    return ((name, wanted.value(name, energy)),) if abs(energy - 1.0) > 1e-13 else ()


def _second(shares: FloatArray) -> FloatArray:
    """Return the bracket of the second equation, for shares (L, ...)."""
    total = np.zeros_like(shares[0])
    for number, u in enumerate(shares):
        later = np.prod(shares[number + 1 :], axis=0)
        total = total + (len(shares) - number) * (1.0 - u) * later
    return np.asarray(total)


def numbers(wanted: Wanted, shares: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """T, the third number and the energy of nets with shares (L, ...) that hold the first."""
    depth, weight = len(shares), wanted.input_weights
    product = np.prod(shares, axis=0)
    total = wanted.first / ((depth + weight) * product)
    third, energy = np.zeros_like(product), np.full_like(product, float(weight))
    for number, u in enumerate(shares):
        before, later = np.prod(shares[:number], axis=0), np.prod(shares[number + 1 :], axis=0)
        third += (depth + 2 * weight + number) * (1.0 - u) * before**2 * later
        energy = 1.0 + energy * (math.pi - 2.0 * u) / PI_LESS_2
    return total, total * third / PI_LESS_2, total * energy


def _beta(wanted: Wanted, depth: int) -> float:
    return PI_LESS_2 * wanted.second * (depth + wanted.input_weights) / wanted.first


def _two(wanted: Wanted, y: FloatArray) -> FloatArray:
    """Shares (2, m) for given y, from the first two equations; NaN outside [0, 1]."""
    with np.errstate(divide="ignore"):
        x = (1.0 + y) / (y * (_beta(wanted, 2) + 2.0))
    return _inside(np.stack([x, y]))


def _two_roots(wanted: Wanted) -> list[FloatArray]:
    """Shares of the first three equations: the roots in (0, 1] of a cubic in y."""
    weight = wanted.input_weights
    q = _beta(wanted, 2) + 2.0
    level = wanted.third * PI_LESS_2 * (2 + weight) / (wanted.first * q)
    first, last = (2 + 2 * weight), (3 + 2 * weight) / q**2
    polynomial = np.array(
        [level - first * (1.0 - 1.0 / q) + last, level + first / q + last, -last, -last]
    )
    roots = np.roots(np.trim_zeros(polynomial, "f"))
    real = np.sort(roots.real[np.abs(roots.imag) <= 1e-9 * np.maximum(1.0, np.abs(roots))])
    derivative = np.polyder(polynomial)
    for _ in range(3):
        real = real - np.polyval(polynomial, real) / np.polyval(derivative, real)
    shares = _two(wanted, real)
    return [column for column in shares.T if not np.isnan(column).any()]


def _quadratic(wanted: Wanted, z: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Coefficients of the equation for y that is left of the last equation."""
    c, weight = PI_LESS_2, wanted.input_weights
    q = _beta(wanted, 3) + 3.0
    h = (3 + weight) / (wanted.first * q)
    e = (math.pi - 2.0 * z) / c
    j = 2.0 * weight / (c * z * q)
    g = 1.0 + weight * math.pi / c - j * z
    square = h * z + 2.0 * e / c * g
    linear = h * (1.0 + z) - 1.0 - e - e / c * (math.pi * g + 2.0 * j * (1.0 + z))
    return square, linear, e / c * math.pi * j * (1.0 + z)


def _discriminant(wanted: Wanted, z: FloatArray) -> FloatArray:
    square, linear, constant = _quadratic(wanted, z)
    return np.asarray(linear**2 - 4.0 * square * constant)


def _three(wanted: Wanted, sign: float, z: FloatArray) -> FloatArray:
    """Shares (3, m) for given z, from all equations but the third; they may leave [0, 1]."""
    q = _beta(wanted, 3) + 3.0
    square, linear, _ = _quadratic(wanted, z)
    with np.errstate(invalid="ignore", divide="ignore"):
        y = (-linear + sign * np.sqrt(_discriminant(wanted, z))) / (2.0 * square)
        x = (1.0 + z + y * z) / (y * z * q)
    return np.stack([x, y, z])


def _grid(wanted: Wanted) -> FloatArray:
    """Grid of z, with the places where the two curves of y meet and end."""
    values = _discriminant(wanted, _GRID)
    ends = []
    for index in np.flatnonzero(values[:-1] * values[1:] < 0.0):
        low, high = float(_GRID[index]), float(_GRID[index + 1])
        place = float(
            optimize.brentq(lambda z: float(_discriminant(wanted, np.array([z]))[0]), low, high)
        )
        ends += [place * (1.0 - 1e-10), place * (1.0 + 1e-10)]
    return np.unique(np.append(_GRID, ends))


def _inside(shares: FloatArray) -> FloatArray:
    with np.errstate(invalid="ignore"):
        good = ((shares > 0.0) & (shares <= 1.0 + 1e-14)).all(axis=0)
    return np.where(good, np.minimum(shares, 1.0), np.nan)


def _roots(curve: Shares, wanted: Wanted, grid: FloatArray) -> Iterator[FloatArray]:
    """Each root of the third equation: a change of sign, or two behind a dip between three nodes.

    The curve is followed beyond [0, 1], so that no root is lost where it enters.
    """

    def gap(z: float) -> float:
        return float(numbers(wanted, curve(np.array([z])))[1][0]) - wanted.third

    with np.errstate(invalid="ignore", divide="ignore"):
        values = numbers(wanted, curve(grid))[1] - wanted.third
        signs = np.sign(values)
    places = [float(z) for z in grid]
    for low, middle, high in _dips(values):
        side = float(signs[middle])
        found = optimize.minimize_scalar(
            lambda z, side=side: side * gap(z), bounds=(places[low], places[high])
        )
        if found.fun < 0.0:
            yield from _bracketed(gap, curve, places[low], float(found.x))
            yield from _bracketed(gap, curve, float(found.x), places[high])
    for index in np.flatnonzero(signs[:-1] * signs[1:] <= 0.0):
        yield from _bracketed(gap, curve, places[index], places[index + 1])


def _dips(values: FloatArray) -> list[tuple[int, int, int]]:
    """Triples of neighbours of one sign whose middle is nearest to zero."""
    size, signs = np.abs(values), np.sign(values)
    same = (signs[:-2] == signs[1:-1]) & (signs[1:-1] == signs[2:])
    low = (size[1:-1] <= size[:-2]) & (size[1:-1] <= size[2:])
    return [(int(i), int(i) + 1, int(i) + 2) for i in np.flatnonzero(same & low)]


def _bracketed(
    gap: Callable[[float], float], curve: Shares, low: float, high: float
) -> Iterator[FloatArray]:
    z = float(optimize.brentq(gap, low, high, xtol=1e-17, rtol=8.9e-16))
    yield curve(np.array([z]))[:, 0]


def _build(wanted: Wanted, shares: FloatArray) -> tuple[Activation, ...]:
    total = float(numbers(wanted, shares)[0]) * wanted.energy
    energies = [wanted.tau0**2] * (len(shares) - 1) + [total]
    return tuple(
        l_relu_of_share(float(u), energy, wanted.tau0)
        for u, energy in zip(shares, energies, strict=True)
    )
