r"""Statistics over seeds: slopes, medians, paired comparisons, each with an interval.

The seed is the unit that is repeated: numbers of one seed may depend on each other, those of
different seeds do not. Every interval therefore first reduces the numbers of a seed to one, or
resamples whole seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from implicitnn._validate import FloatArray, generator, integer, positive, real, real_array


@dataclass(frozen=True)
class Estimate:
    """A value with its interval and the number of seeds behind it."""

    value: float
    low: float
    high: float
    seeds: int


@dataclass(frozen=True)
class Equivalence:
    """Outcome of two one-sided tests: the mean difference, its interval and the larger p-value."""

    difference: Estimate
    p_value: float
    equivalent: bool


def loglog_slope(
    x: ArrayLike, y: ArrayLike, seeds: ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    r"""Return the slope of log y against log x with a t interval over seeds.

    For each seed, the least-squares slope is

    .. math:: b = \sum_i (\log x_i - \overline{\log x}) \log y_i \Big/
              \sum_i (\log x_i - \overline{\log x})^2 .

    The value is the mean of these slopes, one per seed, and the interval is Student's t interval
    of that mean. It assumes that the slopes of different seeds are independent and close to
    normal. It makes no assumption on the errors along x within a seed.

    Parameters
    ----------
    x, y : array_like, shape (m,)
        Positive numbers; y of one seed at two or more different x.
    seeds : array_like of int, shape (m,)
        Seed of each point; at least two different ones.
    confidence : float
        Coverage of the interval, in (0, 1).

    Raises
    ------
    ValueError
        x or y not positive, a seed with a single x or the same x twice, fewer than two seeds.

    Examples
    --------
    >>> n = [100, 400, 100, 400]
    >>> s = loglog_slope(n, [0.2, 0.1, 0.4, 0.2], [0, 0, 1, 1])
    >>> round(s.value, 12), round(s.high - s.low, 12)
    (-0.5, 0.0)
    """
    xs, ys, groups = _columns(x, y, seeds, names=("x", "y"))
    for values, name in ((xs, "x"), (ys, "y")):
        if (values <= 0).any():
            raise ValueError(f"{name} must be positive for a slope in logs, got {values.min()}")
    slopes = []
    for seed in np.unique(groups):
        own = groups == seed
        if np.unique(xs[own]).size < 2 or np.unique(xs[own]).size < own.sum():
            raise ValueError(
                f"seed {seed:g} needs two or more different x, each once; got {sorted(xs[own])}"
            )
        u = np.log(xs[own])
        u -= u.mean()
        slopes.append(float(u @ np.log(ys[own]) / (u @ u)))
    return _t_interval(np.array(slopes), confidence)


def mean(y: ArrayLike, seeds: ArrayLike, *, confidence: float = 0.95) -> Estimate:
    """Return the mean over seeds (of each seed's mean) with a t interval.

    Examples
    --------
    >>> mean([1.0, 3.0, 2.0, 2.0], [0, 0, 1, 1]).value
    2.0
    """
    ys, groups = _columns(y, seeds, names=("y",))
    return _t_interval(_seed_means(ys, groups), confidence)


def median(
    y: ArrayLike,
    seeds: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    rng: np.random.Generator | int = 0,
) -> Estimate:
    """Return the median of all numbers; percentile bootstrap interval over resampled seeds.

    Parameters
    ----------
    y : array_like, shape (m,)
    seeds : array_like of int, shape (m,)
        Whole seeds are drawn with replacement; at least two different ones.
    resamples : int
        Number of bootstrap samples.
    rng : Generator or int
        Seed of the bootstrap.

    Examples
    --------
    >>> e = median([3.0, 1.0, 2.0], [0, 1, 2])
    >>> e.value, e.low >= 1.0, e.high <= 3.0
    (2.0, True, True)
    """
    ys, groups = _columns(y, seeds, names=("y",))

    def statistic(rows: NDArray[np.intp]) -> float:
        return float(np.median(ys[rows]))

    return _bootstrap(statistic, groups, confidence, resamples, rng)


def group_ratio(
    y: ArrayLike,
    groups: ArrayLike,
    seeds: ArrayLike,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    rng: np.random.Generator | int = 0,
) -> Estimate:
    """Return the largest over the smallest of the groups' medians; bootstrap interval over seeds.

    It is 1 when y does not depend on the group. Every seed must have every group. y is positive.

    Examples
    --------
    >>> group_ratio([1.0, 2.0, 1.0, 2.0], ["a", "b", "a", "b"], [0, 0, 1, 1]).value
    2.0
    """
    ys, ids = _columns(y, seeds, names=("y",))
    labels = np.asarray(groups)
    if labels.shape != ys.shape:
        raise ValueError(f"groups must have shape {ys.shape}, got {labels.shape}")
    if (ys <= 0).any():
        raise ValueError(f"y must be positive for a ratio, got {ys.min()}")
    kinds = np.unique(labels)
    if kinds.size < 2:
        raise ValueError(f"groups must name at least two groups, got {kinds.tolist()}")
    for seed in np.unique(ids):
        absent = set(kinds.tolist()) - set(labels[ids == seed].tolist())
        if absent:
            raise ValueError(f"seed {seed:g} lacks the groups {sorted(absent, key=str)}")

    def statistic(rows: NDArray[np.intp]) -> float:
        medians = [np.median(ys[rows][labels[rows] == kind]) for kind in kinds]
        return float(max(medians) / min(medians))

    return _bootstrap(statistic, ids, confidence, resamples, rng)


def paired_difference(
    first: ArrayLike, second: ArrayLike, seeds: ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    """Return the mean of first - second over seeds, paired, with a t interval.

    Examples
    --------
    >>> round(paired_difference([1.1, 2.1], [1.0, 2.0], [0, 1]).value, 12)
    0.1
    """
    a, b, groups = _columns(first, second, seeds, names=("first", "second"))
    return _t_interval(_seed_means(a - b, groups), confidence)


def paired_ratio(
    first: ArrayLike, second: ArrayLike, seeds: ArrayLike, *, confidence: float = 0.95
) -> Estimate:
    r"""Return the geometric mean of first / second over seeds, paired.

    The interval is the t interval of :math:`\log(first/second)`, one mean per seed, put back by
    the exponential. Both must be positive.

    Examples
    --------
    >>> round(paired_ratio([2.0, 4.0], [1.0, 2.0], [0, 1]).value, 12)
    2.0
    """
    a, b, groups = _columns(first, second, seeds, names=("first", "second"))
    if min(a.min(), b.min()) <= 0:
        raise ValueError(f"a ratio needs positive numbers, got {min(a.min(), b.min())}")
    logs = _t_interval(_seed_means(np.log(a / b), groups), confidence)
    return Estimate(math.exp(logs.value), math.exp(logs.low), math.exp(logs.high), logs.seeds)


def tost(
    first: ArrayLike, second: ArrayLike, seeds: ArrayLike, margin: float, *, level: float = 0.05
) -> Equivalence:
    """Return whether the mean paired difference lies within +- ``margin``: two one-sided tests.

    The two tests at ``level`` reject together exactly when the interval of coverage 1 - 2 level
    lies inside (-margin, margin); that interval is returned with the larger of the two p-values.

    Examples
    --------
    >>> a, b = [90.1, 90.0, 90.2, 89.9], [90.0, 90.1, 90.1, 90.0]
    >>> tost(a, b, [0, 1, 2, 3], 0.5).equivalent
    True
    """
    bound = positive(margin, "margin")
    size = real(level, "level")
    if not 0 < size < 0.5:
        raise ValueError(f"level must lie in (0, 0.5), got {size}")
    a, b, groups = _columns(first, second, seeds, names=("first", "second"))
    each = _seed_means(a - b, groups)
    interval = _t_interval(each, 1 - 2 * size)
    spread = float(each.std(ddof=1) / math.sqrt(each.size))
    gap = bound - abs(interval.value)
    p_value = float(stats.t.sf(gap / spread, each.size - 1)) if spread > 0 else float(gap <= 0)
    return Equivalence(interval, p_value, p_value < size)


def _columns(*arrays: ArrayLike, names: tuple[str, ...]) -> tuple[FloatArray, ...]:
    """Return the arrays as floats and the last as seeds, all of one length."""
    checked = [real_array(a, n, 1) for a, n in zip(arrays, (*names, "seeds"), strict=True)]
    for array, name in zip(checked, (*names, "seeds"), strict=True):
        if array.size != checked[0].size:
            raise ValueError(
                f"{name} has {array.size} entries but {names[0]} has {checked[0].size}"
            )
    return tuple(checked)


def _seed_means(values: FloatArray, groups: FloatArray) -> FloatArray:
    return np.array([values[groups == seed].mean() for seed in np.unique(groups)])


def _coverage(confidence: float) -> float:
    value = real(confidence, "confidence")
    if not 0 < value < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {value}")
    return value


def _t_interval(values: FloatArray, confidence: float) -> Estimate:
    coverage = _coverage(confidence)
    if values.size < 2:
        raise ValueError("an interval needs at least two seeds, got 1")
    centre = float(values.mean())
    spread = float(values.std(ddof=1)) / math.sqrt(values.size)
    half = spread * float(stats.t.ppf(0.5 + coverage / 2, values.size - 1))
    return Estimate(centre, centre - half, centre + half, int(values.size))


def _bootstrap(
    statistic: Callable[[NDArray[np.intp]], float],
    groups: FloatArray,
    confidence: float,
    resamples: int,
    rng: np.random.Generator | int,
) -> Estimate:
    """Return the statistic of all rows, and its percentiles when whole seeds are redrawn."""
    coverage = _coverage(confidence)
    members = [np.flatnonzero(groups == seed) for seed in np.unique(groups)]
    if len(members) < 2:
        raise ValueError("an interval needs at least two seeds, got 1")
    count = integer(resamples, "resamples", 1)
    draws = generator(rng).integers(len(members), size=(count, len(members)))
    redrawn = [statistic(np.concatenate([members[i] for i in draw])) for draw in draws]
    low, high = np.quantile(redrawn, [0.5 - coverage / 2, 0.5 + coverage / 2])
    return Estimate(statistic(np.arange(groups.size)), float(low), float(high), len(members))
