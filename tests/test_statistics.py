"""Statistics against textbook values, their coverage, and bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from implicitnn.statistics import (
    group_ratio,
    loglog_slope,
    mean,
    median,
    paired_difference,
    paired_ratio,
    tost,
)

SEEDS = np.arange(12)


def power_laws(slopes, sizes=(100, 200, 400, 800), noise=0.0, rng=0):
    generator = np.random.default_rng(rng)
    x = np.tile(sizes, len(slopes)).astype(float)
    seeds = np.repeat(np.arange(len(slopes)), len(sizes))
    logs = np.repeat(slopes, len(sizes)) * np.log(x) + noise * generator.normal(size=x.size)
    return x, np.exp(logs), seeds


def test_slope_is_the_mean_of_the_seeds_slopes_with_a_t_interval():
    slopes = np.array([-0.5, -0.55, -0.4, -0.6])
    result = loglog_slope(*power_laws(slopes))
    reference = stats.ttest_1samp(slopes, 0).confidence_interval(0.95)
    assert result.value == pytest.approx(slopes.mean(), abs=1e-12)
    assert (result.low, result.high) == pytest.approx(tuple(reference), abs=1e-12)
    assert result.seeds == 4


def test_slope_does_not_depend_on_order_or_units():
    x, y, seeds = power_laws([-0.5, -0.4, -0.7], noise=0.1)
    order = np.random.default_rng(1).permutation(x.size)
    one, two = loglog_slope(x, y, seeds), loglog_slope(7 * x[order], y[order] / 3, seeds[order])
    assert (one.value, one.low) == pytest.approx((two.value, two.low), abs=1e-12)


def test_the_interval_covers_the_true_slope_as_often_as_it_says():
    trials = 400
    hits = 0
    for trial in range(trials):
        found = loglog_slope(*power_laws([-0.5] * 6, noise=0.2, rng=trial), confidence=0.9)
        hits += found.low <= -0.5 <= found.high
    # Binomial with p = 0.9: a deviation of four standard errors is one in 16,000.
    assert abs(hits / trials - 0.9) < 4 * np.sqrt(0.09 / trials)


@settings(deadline=None)
@given(st.floats(0.5, 0.99))
def test_more_confidence_makes_a_wider_interval(level):
    y, seeds = [1.0, 2.0, 4.0], [0, 1, 2]
    wide, narrow = mean(y, seeds, confidence=level + 0.005), mean(y, seeds, confidence=level)
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_numbers_of_one_seed_count_once():
    y = np.random.default_rng(0).normal(size=5)
    once = mean(y, SEEDS[:5])
    many = mean(np.repeat(y, 10), np.repeat(SEEDS[:5], 10))
    assert (once.low, once.high) == pytest.approx((many.low, many.high))
    assert once.seeds == many.seeds == 5


def test_median_and_its_bootstrap():
    y = np.random.default_rng(3).normal(size=12)
    found = median(y, SEEDS)
    assert found.value == np.median(y)
    assert np.sort(y)[1] <= found.low <= found.value <= found.high <= np.sort(y)[-2]
    assert found == median(y, SEEDS)
    assert found != median(y, SEEDS, rng=1, resamples=50)
    assert median(y, SEEDS, rng=1, resamples=50) == median(y, SEEDS, rng=1, resamples=50)


def test_group_ratio():
    y = np.array([1.0, 3.0, 2.0, 1.0, 3.0, 2.0])
    groups, seeds = ["a", "b", "c"] * 2, [0, 0, 0, 1, 1, 1]
    assert group_ratio(y, groups, seeds).value == 3.0
    assert group_ratio(np.ones(6), groups, seeds).high == 1.0
    with pytest.raises(ValueError, match=r"seed 1 lacks the groups \['c'\]"):
        group_ratio(y[:5], groups[:5], seeds[:5])
    with pytest.raises(ValueError, match="two groups"):
        group_ratio(y, ["a"] * 6, seeds)


def test_paired_statistics_against_scipy():
    rng = np.random.default_rng(5)
    a, b = rng.uniform(1, 2, 12), rng.uniform(1, 2, 12)
    difference = paired_difference(a, b, SEEDS)
    reference = stats.ttest_rel(a, b).confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx(tuple(reference))
    ratio = paired_ratio(a, b, SEEDS)
    logs = stats.ttest_rel(np.log(a), np.log(b)).confidence_interval(0.95)
    assert (ratio.low, ratio.high) == pytest.approx(tuple(np.exp(logs)))
    assert ratio.value == pytest.approx(stats.gmean(a / b))


def test_tost_is_the_inclusion_of_the_ninety_percent_interval():
    rng = np.random.default_rng(2)
    outcomes = set()
    for margin in np.linspace(0.1, 1.5, 30):
        a, b = rng.normal(0.3, 1, 12), rng.normal(0, 1, 12)
        found = tost(a, b, SEEDS, margin)
        inside = -margin < found.difference.low and found.difference.high < margin
        assert found.equivalent == inside
        lower = stats.ttest_1samp(a - b, -margin, alternative="greater").pvalue
        upper = stats.ttest_1samp(a - b, margin, alternative="less").pvalue
        assert found.p_value == pytest.approx(max(lower, upper))
        outcomes.add(inside)
    assert outcomes == {True, False}


def test_tost_without_spread():
    assert tost([1.0, 1.0], [1.0, 1.0], [0, 1], 0.1).equivalent
    assert not tost([1.2, 1.2], [1.0, 1.0], [0, 1], 0.1).equivalent


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: loglog_slope([1, 2], [1.0, 0.0], [0, 0]), "y must be positive"),
        (lambda: loglog_slope([-1, 2], [1, 1], [0, 0]), "x must be positive"),
        (lambda: loglog_slope([1, 1], [1, 2], [0, 0]), "each once"),
        (lambda: loglog_slope([1, 2, 3], [1, 2, 3], [0, 0, 1]), "seed 1 needs two"),
        (lambda: loglog_slope([1, 2], [1, 2], [0, 0]), "at least two seeds"),
        (lambda: mean([1.0, np.nan], [0, 1]), "finite"),
        (lambda: mean([1.0, 2.0], [0]), "seeds has 1 entries"),
        (lambda: mean([], []), "empty"),
        (lambda: mean([1.0, 2.0], [0, 1], confidence=1.0), "confidence"),
        (lambda: median([1.0, 2.0], [0, 0]), "at least two seeds"),
        (lambda: paired_ratio([1.0, -1.0], [1.0, 1.0], [0, 1]), "positive"),
        (lambda: tost([1.0, 1.0], [1.0, 1.0], [0, 1], 0.0), "margin"),
        (lambda: tost([1.0, 1.0], [1.0, 1.0], [0, 1], 1.0, level=0.5), "level"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_no_resamples_are_refused():
    with pytest.raises(ValueError, match="resamples must be at least 1, got 0"):
        median([1.0, 2.0], [0, 1], resamples=0)
