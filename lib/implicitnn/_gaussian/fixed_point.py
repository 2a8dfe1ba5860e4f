r"""The fixed point of the infinite-width variance map of a DEQ.

:math:`v = \sigma_a^2 F(v) + d`, where F(v) is the variance (or the second moment) of
:math:`f(\sqrt v\,\xi)` and d > 0 is the drive of the input and the bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from implicitnn import gaussian
from implicitnn._gaussian.centring import moderate

FloatArray = NDArray[np.float64]
Function = Callable[[FloatArray], FloatArray]
Cuts = Callable[[float], Sequence[float]]
VarianceMap = Callable[[float], tuple[float, float]]

_STAGES = (1.0, 4.0, 64.0, 1e4, 1e8, 1e12, 1e16)
_NEWTON_STEPS = 80


class NoFixedPointError(ArithmeticError):
    """The variance map has no fixed point: the variance grows without bound."""


def smallest_fixed_point(
    f: Function, cuts: Cuts, sigma_a2: float, drive: float, centred: bool
) -> float:
    """Return the smallest solution, to rounding; it is the one reached from the state z = 0.

    A coarse scan finds the first interval where the map crosses the diagonal; a Newton iteration
    kept inside that interval does the rest.

    ``cuts(tau)`` tells where integrals at the scale tau are to be cut.

    Raises
    ------
    NoFixedPointError : there is no crossing up to 1e16 times the drive, or up to where f^2
        overflows.
    """
    if sigma_a2 == 0.0:
        return drive
    low, high = _bracket(f, cuts, sigma_a2, drive, centred)
    v = 0.5 * (low + high)
    for _ in range(_NEWTON_STEPS):
        value, slope = _map(f, cuts, sigma_a2, drive, centred, v)
        low, high = (v, high) if value > v else (low, v)
        step = (value - v) / (1.0 - slope) if slope < 1.0 else math.inf
        new = v + step
        if abs(step) <= 4e-16 * v:
            return new
        v = new if low <= new <= high else 0.5 * (low + high)
        if high - low <= 2e-16 * high:
            break
    return v


def _map(
    f: Function, cuts: Cuts, sigma_a2: float, drive: float, centred: bool, v: float
) -> tuple[float, float]:
    """Return the map and its derivative at v."""
    tau = math.sqrt(v)
    kinks = cuts(tau)
    offset = gaussian.expectation(f, tau, kinks) if centred else 0.0
    m = gaussian.stein_moments(lambda t: f(t) - offset, tau, kinks)
    return sigma_a2 * m.square + drive, 0.5 * sigma_a2 * m.square_d2


def _dip(variance_map: VarianceMap, grid: FloatArray, excess: FloatArray) -> float | None:
    """Return a place where map(v) - v <= 0 between three grid points whose values are positive.

    Two close solutions hide there from the scan. The parabola through the points tells whether to
    look; the minimum is where the slope of the map is one.
    """
    bend = excess[0] - 2.0 * excess[1] + excess[2]
    drop = (excess[2] - excess[0]) ** 2 / (8.0 * bend) if bend > 0.0 else 0.0
    if drop < 0.3 * excess[1] and excess[1] > 0.01 * bend:
        return None
    low, high = float(grid[0]), float(grid[2])
    if not variance_map(low)[1] < 1.0 < variance_map(high)[1]:
        return None
    lowest = float(optimize.brentq(lambda v: variance_map(v)[1] - 1.0, low, high, rtol=1e-9))
    return lowest if variance_map(lowest)[0] <= lowest else None


def _bracket(
    f: Function, cuts: Cuts, sigma_a2: float, drive: float, centred: bool
) -> tuple[float, float]:
    variance_map = partial(_map, f, cuts, sigma_a2, drive, centred)
    reached = ""
    for start, stop in pairwise(_STAGES):
        grid = drive * np.geomspace(start, stop, 61)
        safe = moderate(f, np.sqrt(grid))
        if not safe.all():
            # Beyond the first place where the square of f overflows nothing can be said.
            grid = grid[: int(np.argmin(safe))]
            reached = " below the scale at which f^2 overflows"
        if grid.size < 2:
            break
        mean, square = gaussian.variance_profile(f, np.sqrt(grid), cuts(math.sqrt(grid[-1])))
        excess = sigma_a2 * (square - centred * mean**2) + drive - grid
        below = np.flatnonzero(excess <= 0.0)
        first = int(below[0]) if below.size else grid.size
        for i in range(1, min(first, grid.size - 1)):
            if excess[i] <= min(excess[i - 1], excess[i + 1]):
                dip = _dip(variance_map, grid[i - 1 : i + 2], excess[i - 1 : i + 2])
                if dip is not None:
                    return float(grid[i - 1]), dip
        if below.size:
            return float(grid[max(first - 1, 0)]), float(grid[first])
        if reached:
            break
    raise NoFixedPointError(
        f"tau^2 = sigma_a2 E[phi(tau xi)^2] + sigma_b2 tau0^2 + sigma_c2 has no solution{reached}"
    )
