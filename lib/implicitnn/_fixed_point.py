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

from . import gaussian

FloatArray = NDArray[np.float64]
Function = Callable[[FloatArray], FloatArray]
VarianceMap = Callable[[float], tuple[float, float]]

_STAGES = (1.0, 4.0, 64.0, 1e4, 1e8)
_NEWTON_STEPS = 80


class NoFixedPointError(ArithmeticError):
    """The variance map has no fixed point: the variance grows without bound."""


def smallest_fixed_point(
    f: Function, kinks: Sequence[float], sigma_a2: float, drive: float, centred: bool
) -> float:
    """The smallest solution, to rounding; it is the one reached from the state z = 0.

    A coarse scan finds the first interval where the map crosses the diagonal; a Newton iteration
    kept inside that interval does the rest.

    Raises
    ------
    NoFixedPointError : there is no crossing up to 1e8 times the drive.
    """
    if sigma_a2 == 0.0:
        return drive
    low, high = _bracket(f, kinks, sigma_a2, drive, centred)
    v = 0.5 * (low + high)
    for _ in range(_NEWTON_STEPS):
        value, slope = _map(f, kinks, sigma_a2, drive, centred, v)
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
    f: Function, kinks: Sequence[float], sigma_a2: float, drive: float, centred: bool, v: float
) -> tuple[float, float]:
    """The map and its derivative at v."""
    tau = math.sqrt(v)
    offset = gaussian.expectation(f, tau, kinks) if centred else 0.0
    m = gaussian.stein_moments(lambda t: f(t) - offset, tau, kinks)
    return sigma_a2 * m.square + drive, 0.5 * sigma_a2 * m.square_d2


def _lowest(variance_map: VarianceMap, low: float, high: float) -> float:
    """Where map(v) - v has its minimum: a grazing pair of solutions hides there from the scan."""
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if variance_map(middle)[1] < 1.0 else (low, middle)
    return low


def _bracket(
    f: Function, kinks: Sequence[float], sigma_a2: float, drive: float, centred: bool
) -> tuple[float, float]:
    variance_map = partial(_map, f, kinks, sigma_a2, drive, centred)
    for start, stop in pairwise(_STAGES):
        grid = drive * np.geomspace(start, stop, 61)
        mean, square = gaussian.variance_profile(f, np.sqrt(grid), kinks)
        excess = sigma_a2 * (square - centred * mean**2) + drive - grid
        below = np.flatnonzero(excess <= 0.0)
        first = int(below[0]) if below.size else grid.size
        for i in range(1, min(first, grid.size - 1)):
            if excess[i] <= min(excess[i - 1], excess[i + 1]):
                dip = _lowest(variance_map, float(grid[i - 1]), float(grid[i + 1]))
                if variance_map(dip)[0] <= dip:
                    return float(grid[i - 1]), dip
        if below.size:
            return float(grid[max(first - 1, 0)]), float(grid[first])
    raise NoFixedPointError(
        "tau^2 = sigma_a2 E[phi(tau xi)^2] + sigma_b2 tau0^2 + sigma_c2 has no solution"
    )
