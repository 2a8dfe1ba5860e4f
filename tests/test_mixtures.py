"""Mixtures: sampling, statistics, hostile input, and the estimates from data."""

from __future__ import annotations

import dataclasses
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicitnn import mixtures
from implicitnn._rmt import moments as _moments
from implicitnn.mixtures import GaussianMixture, Sample, Statistics


def three_classes(p: int = 12) -> GaussianMixture:
    """A scalar, a diagonal and a full covariance."""
    rng = np.random.default_rng(5)
    root = rng.standard_normal((p, p)) / np.sqrt(p)
    covariances = [0.5, np.linspace(0.5, 2.0, p), root @ root.T + 0.1 * np.eye(p)]
    return GaussianMixture(rng.standard_normal((3, p)), covariances, [0.2, 0.3, 0.5])


# --- sampling -------------------------------------------------------------------------------------


def test_same_seed_same_sample_and_generator_equals_seed() -> None:
    mixture = three_classes()
    a, b = mixture.sample(30, 7), mixture.sample(30, np.random.default_rng(7))
    assert np.array_equal(a.X, b.X)
    assert not np.array_equal(a.X, mixture.sample(30, 8).X)


def test_scale_changes_tau0_only() -> None:
    mixture = mixtures.benchmark(100)
    data, covariance = mixture.sample(80, 3), mixture.sample(80, 3, scale="covariance")
    assert np.array_equal(data.X, covariance.X)
    assert np.array_equal(data.statistics.V, covariance.statistics.V)
    assert data.statistics.tau0**2 == pytest.approx(np.sum(data.X**2) / 80, rel=1e-14)
    assert covariance.statistics.tau0**2 == pytest.approx(1.4, rel=1e-14)


def test_noise_is_fixed_by_the_seed_whatever_the_means() -> None:
    p, diagonal = 20, np.linspace(1, 2, 20)
    shifted = GaussianMixture(3.0 * np.ones((1, p)), [diagonal], [1.0]).sample(5, 1)
    centred = GaussianMixture(np.zeros((1, p)), [diagonal], [1.0]).sample(5, 1)
    assert np.allclose(shifted.X - centred.X, 3.0 / np.sqrt(p), atol=1e-15)
    assert np.array_equal(shifted.statistics.psi, centred.statistics.psi)


def test_statistics_from_their_definitions() -> None:
    mixture, n = three_classes(), 10
    p, sample = mixture.p, mixture.sample(n, 2)
    full = [0.5 * np.eye(p), np.diag(mixture.covariances[1]), mixture.covariances[2]]
    counts = np.array([2, 3, 5])
    pooled = sum(c * w / n for c, w in zip(full, counts, strict=True))
    s = sample.statistics
    assert sample.labels.tolist() == [0] * 2 + [1] * 3 + [2] * 5
    assert np.allclose(s.t, [np.trace(c - pooled) / np.sqrt(p) for c in full], atol=1e-14)
    assert np.allclose(s.T, [[np.trace(a @ b) / p for b in full] for a in full], atol=1e-14)
    z = np.sqrt(p) * sample.X - mixture.means[sample.labels]
    traces = np.array([np.trace(c) for c in full])
    assert np.allclose(s.psi, (z**2).sum(1) / p - traces[sample.labels] / p, atol=1e-13)
    assert np.array_equal(s.J, np.eye(3)[sample.labels])
    assert np.array_equal(s.V, np.column_stack([s.J / np.sqrt(p), s.psi]))
    assert np.allclose(s.weights, counts / n)


def test_sample_has_the_means_and_covariances_of_each_class() -> None:
    mixture, n = three_classes(p=4), 60_000
    sample = mixture.sample(n, 0)
    for a in range(3):
        rows = 2.0 * sample.X[sample.labels == a]
        covariance = mixture.covariances[a]
        covariance = np.diag(covariance) if covariance.ndim == 1 else covariance
        # 60 comparisons in all: 5 standard errors leave a chance of 4e-5 of a false alarm.
        error = np.abs(rows.mean(0) - mixture.means[a]) / np.sqrt(np.diag(covariance) / len(rows))
        assert error.max() < 5
        spread = np.sqrt((np.outer(*[np.diag(covariance)] * 2) + covariance**2) / len(rows))
        assert (np.abs(np.cov(rows.T) - covariance) / spread).max() < 5


def test_singular_covariance_stays_in_its_range() -> None:
    factor = np.random.default_rng(0).standard_normal((6, 2))
    mixture = GaussianMixture(np.zeros((1, 6)), [factor @ factor.T], [1.0])
    X = mixture.sample(50, 0).X
    outside = np.eye(6) - factor @ np.linalg.pinv(factor)
    assert np.abs(X @ outside).max() < 1e-12
    assert np.linalg.matrix_rank(X) == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(lambda w: sum(w) > 0),
    st.integers(1, 500),
)
def test_counts_sum_to_n_within_one_of_the_quota(raw: list[int], n: int) -> None:
    weights = np.array(raw) / sum(raw)
    k = len(raw)
    counts = GaussianMixture(np.zeros((k, 2)), [1.0] * k, weights).counts(n)
    assert counts.sum() == n
    assert np.abs(counts - n * weights).max() < 1 + 1e-6


def test_counts_resist_rounding_and_break_ties_low() -> None:
    mixture = GaussianMixture(np.zeros((3, 1)), [1.0] * 3, [0.29, 0.29, 0.42])
    assert mixture.counts(100).tolist() == [29, 29, 42]
    thirds = GaussianMixture(np.zeros((3, 1)), [1.0] * 3, [1 / 3] * 3)
    assert thirds.counts(4).tolist() == [2, 1, 1]
    assert thirds.counts(5).tolist() == [2, 2, 1]


def test_class_without_samples_keeps_its_place() -> None:
    mixture = GaussianMixture(np.zeros((3, 9)), [1.0, 2.0, 5.0], [0.5, 0.5, 0.0])
    sample = mixture.sample(2, 0)
    s = sample.statistics
    assert sample.labels.tolist() == [0, 1]
    assert s.J[:, 2].tolist() == [0.0, 0.0]
    assert s.weights.tolist() == [0.5, 0.5, 0.0]
    assert np.allclose(s.t, [-1.5, 1.5, 10.5])
    assert mixture.sample(1, 0).statistics.t[0] == 0.0


def test_benchmark_is_the_authors_mixture() -> None:
    mixture = mixtures.benchmark(400)
    assert np.argwhere(mixture.means).tolist() == [[0, 0], [1, 8]]
    assert set(mixture.means[mixture.means != 0]) == {8.0}
    assert np.allclose(mixture.covariances[1], 1.4)
    assert mixtures.benchmark(9, mean=1.0).means[1, 8] == 1.0
    s = mixture.sample(320, 0).statistics
    assert np.allclose(s.t, [-4, 4])
    assert np.allclose(s.T, [[1, 1.4], [1.4, 1.96]])


def test_everything_is_read_only_and_the_callers_arrays_are_not() -> None:
    means, covariance = np.zeros((1, 3)), np.ones(3)
    mixture = GaussianMixture(means, [covariance], [1.0])
    sample = mixture.sample(4, 0)
    s = sample.statistics
    for array in (mixture.means, *mixture.covariances, mixture.weights, mixture.trace_products):
        assert not array.flags.writeable
    for array in (sample.X, sample.labels, s.t, s.T, s.psi, s.J, s.V):
        assert not array.flags.writeable
    means[0, 0], covariance[0] = 9.0, 9.0
    assert mixture.means[0, 0] == 0.0
    assert mixture.covariances[0][0] == 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        mixture.weights = np.ones(1)  # type: ignore[misc]


# --- hostile input --------------------------------------------------------------------------------

ONE = np.zeros((1, 2))
TWO = np.zeros((2, 2))


@pytest.mark.parametrize(
    ("means", "covariances", "weights", "message"),
    [
        (np.zeros(2), [1.0], [1.0], r"means must have 2 axes, got shape \(2,\)"),
        (np.zeros((0, 2)), [], [], "means must not be empty"),
        (np.array([[np.nan, 0]]), [1.0], [1.0], "means must be finite, got nan"),
        (ONE, [1.0, 1.0], [1.0], r"covariances must have one entry per row of means \(1\), got 2"),
        (ONE, [np.ones(3)], [1.0], r"covariances\[0\] must have shape \(2,\) or \(2, 2\)"),
        (TWO, [1.0, np.ones((2, 3))], [0.5, 0.5], r"covariances\[1\] must have shape"),
        (ONE, [-1.0], [1.0], r"covariances\[0\] must not be negative, got -1.0"),
        (ONE, [np.array([1.0, -2.0])], [1.0], r"covariances\[0\] .* got -2.0 at index 1"),
        (ONE, [np.array([[1.0, 0.5], [0.4, 1.0]])], [1.0], "must be symmetric, got .* up to 0.1"),
        (ONE, [np.array([[1.0, 2.0], [2.0, 1.0]])], [1.0], "semidefinite, got the eigenvalue -1"),
        (ONE, [np.array([[np.inf, 0.0], [0.0, 1.0]])], [1.0], r"covariances\[0\] must be finite"),
        (ONE, [1.0], [0.5, 0.5], r"weights must have one entry per class \(1\), got 2"),
        (TWO, [1.0, 1.0], [1.5, -0.5], "weights must not be negative, got -0.5 for class 1"),
        (TWO, [1.0, 1.0], [0.5, 0.4], "weights must sum to 1 within 1e-9, got 0.9"),
    ],
)
def test_bad_mixtures(means: object, covariances: object, weights: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianMixture(means, covariances, weights)  # type: ignore[arg-type]


def test_bad_types_and_bad_samples() -> None:
    with pytest.raises(TypeError, match="covariances must be a sequence"):
        GaussianMixture(ONE, 1.0, [1.0])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="means must be real, got complex"):
        GaussianMixture(1j * ONE, [1.0], [1.0])
    mixture = mixtures.benchmark(20)
    for bad in (0, -3):
        with pytest.raises(ValueError, match="n must be at least 1"):
            mixture.sample(bad, 0)
    with pytest.raises(TypeError, match="n must be an integer"):
        mixture.sample(10.0, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"rng must be an integer seed or a .*Generator, got None"):
        mixture.sample(10, None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="scale must be one of 'data', 'covariance'; got 'x'"):
        mixture.sample(10, 0, scale="x")
    with pytest.raises(ValueError, match="p must be at least 9"):
        mixtures.benchmark(8)
    with pytest.raises(ValueError, match="all zero"):
        GaussianMixture(ONE, [0.0], [1.0]).sample(3, 0)


def test_bad_statistics_and_samples_by_hand() -> None:
    sample = mixtures.benchmark(20).sample(6, 0)
    good = sample.statistics
    for change, message in [
        ({"tau0": 0.0}, "tau0 must be positive"),
        ({"T": np.eye(3)}, "T must have shape"),
        ({"T": np.array([[1.0, 2.0], [0.0, 1.0]])}, "T must be symmetric"),
        ({"J": np.ones((6, 2))}, "J must hold one-hot rows"),
        ({"V": np.ones((6, 2))}, "V must have shape"),
        ({"scale": "other"}, "scale must be one of"),
    ]:
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(good, **change)
    with pytest.raises(ValueError, match="statistics describe 6 samples, X has 5"):
        Sample(sample.X[:5], sample.labels[:5], good)
    with pytest.raises(ValueError, match="assign different classes"):
        Sample(sample.X, sample.labels[::-1], good)
    with pytest.raises(ValueError, match=r"labels must lie in 0 \.\. 1"):
        Sample(sample.X, sample.labels + 1, good)
    assert isinstance(good, Statistics)


@pytest.mark.parametrize("function", [mixtures.empirical, mixtures.gaussian_twin])
def test_bad_data_for_the_estimates(function: object) -> None:
    assert callable(function)
    X, y = np.random.default_rng(0).standard_normal((8, 3)), np.repeat([0, 1], 4)
    with pytest.raises(ValueError, match=r"labels must have one entry per row of X \(8\), got 7"):
        function(X, y[:7])
    with pytest.raises(TypeError, match="labels must be integers, got dtype float64"):
        function(X, y.astype(float))
    with pytest.raises(TypeError, match="labels must be integers, got dtype bool"):
        function(X, y == 1)
    with pytest.raises(TypeError, match="labels must be integers"):
        function(X, y.astype(str))
    with pytest.raises(ValueError, match="labels must have 1 axis"):
        function(X, y[:, None])
    with pytest.raises(ValueError, match=r"every class at least \d samples, class 5 has 1"):
        function(X, np.array([0, 0, 0, 0, 3, 3, 3, 5]))
    with pytest.raises(ValueError, match="X must be finite"):
        function(np.where(X > 1.0, np.nan, X), y)
    with pytest.raises(ValueError, match="X must have 2 axes"):
        function(X[0], y[:1])
    with pytest.raises(ValueError, match="fit in int64"):
        function(X, np.full(8, 2**63, dtype=np.uint64))


def test_all_zero_data_is_refused() -> None:
    with pytest.raises(ValueError, match="X must not be all zero"):
        mixtures.empirical(np.zeros((8, 3)), np.repeat([0, 1], 4))


# --- estimates from data --------------------------------------------------------------------------


def brute_force_square(X: np.ndarray) -> float:
    """U-statistic for tr Sigma^2 straight from its definition over distinct indices."""
    n, gram = len(X), X @ X.T
    pairs = itertools.permutations(range(n), 2)
    triples = itertools.permutations(range(n), 3)
    quadruples = itertools.permutations(range(n), 4)
    two = np.mean([gram[i, j] ** 2 for i, j in pairs])
    three = np.mean([gram[i, j] * gram[j, k] for i, j, k in triples])
    four = np.mean([gram[i, j] * gram[k, m] for i, j, k, m in quadruples])
    return float(two - 2 * three + four)


def test_diagonal_of_T_is_the_u_statistic() -> None:
    X = 3.0 + np.random.default_rng(1).standard_t(5, (7, 4))
    T = mixtures.empirical(X, np.zeros(7, dtype=int)).statistics.T
    assert T[0, 0] == pytest.approx(4 * brute_force_square(X), rel=1e-12)


def test_gram_and_scatter_routes_agree() -> None:
    rng = np.random.default_rng(2)
    parts = [rng.standard_normal((m, 9)) for m in (1500, 40, 7)]
    assert np.allclose(_moments._by_gram(parts), _moments._by_scatter(parts), rtol=1e-12)


def test_estimates_against_the_definitions() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((15, 30)) + 1.0, np.array([7, -2, 7, 7, -2] * 3)
    sample = mixtures.empirical(X, y)
    s = sample.statistics
    covariances = [30 * np.cov(X[y == label].T) for label in (-2, 7)]
    traces = np.array([np.trace(c) for c in covariances])
    assert sample.labels.tolist() == (y == 7).astype(int).tolist()
    assert np.array_equal(sample.X, X)
    pooled = (6 * traces[0] + 9 * traces[1]) / 15
    assert np.allclose(s.t, (traces - pooled) / np.sqrt(30), atol=1e-12)
    assert s.T[0, 1] == pytest.approx(np.trace(covariances[0] @ covariances[1]) / 30, rel=1e-12)
    means = np.stack([X[y == label].mean(0) for label in (-2, 7)])[sample.labels]
    assert np.allclose(s.psi, ((X - means) ** 2).sum(1) - traces[sample.labels] / 30, atol=1e-12)
    assert s.tau0**2 == pytest.approx((X**2).sum() / 15, rel=1e-14)


def test_estimates_are_unbiased_on_the_benchmark() -> None:
    mixture = mixtures.benchmark(60)
    draws = [mixture.sample(40, seed) for seed in range(200)]
    found = [mixtures.empirical(d.X, d.labels).statistics for d in draws]
    for name in ("T", "t"):
        values = np.array([getattr(s, name) for s in found])
        truth = getattr(draws[0].statistics, name)
        z = (values.mean(0) - truth) / (values.std(0, ddof=1) / np.sqrt(len(draws)))
        assert np.abs(z).max() < 4, name
    plug_in = np.trace(np.linalg.matrix_power(60 * np.cov(draws[0].X[:20].T), 2)) / 60
    assert plug_in > 2 * draws[0].statistics.T[0, 0]


def test_empirical_ignores_row_order_and_dtype() -> None:
    drawn = mixtures.benchmark(16).sample(20, 4)
    order = np.random.default_rng(0).permutation(20)
    a = mixtures.empirical(drawn.X, drawn.labels).statistics
    b = mixtures.empirical(drawn.X[order], drawn.labels[order].astype(np.uint8)).statistics
    assert np.allclose(a.T, b.T, rtol=1e-12)
    assert np.allclose(a.V[order], b.V, atol=1e-14)
    c = mixtures.empirical(drawn.X.astype(np.float32)[:, ::-1], drawn.labels).statistics
    assert np.allclose(a.T, c.T, rtol=1e-5)


def test_twin_has_the_moments_of_the_data_when_singular() -> None:
    rng = np.random.default_rng(6)
    X, y = rng.standard_normal((21, 40)), np.array([0, 1, 1] * 7)
    twin = mixtures.gaussian_twin(X, y)
    assert twin.p == 40
    assert np.allclose(twin.weights, [1 / 3, 2 / 3])
    for a in (0, 1):
        assert np.allclose(twin.covariances[a], 40 * np.cov(X[y == a].T), atol=1e-12)
        assert np.allclose(twin.means[a], np.sqrt(40) * X[y == a].mean(0), atol=1e-13)
    drawn = twin.sample(21, 0)
    assert np.bincount(drawn.labels).tolist() == [7, 14]
    traces = mixtures.empirical(X, y).statistics.t
    assert np.allclose(drawn.statistics.t, traces, atol=1e-12)


# --- hostile input --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10**9 + 1, 10**15 + 7, 2**53])
@pytest.mark.parametrize(
    "weights", [[0.1, 0.2, 0.7], [1 / 3] * 3, [1e-300, 1.0, 0.0], [0.5 + 5e-10, 0.5 + 4e-10, 0.0]]
)
def test_counts_of_large_samples_are_exact(n: int, weights: list[float]) -> None:
    mixture = mixtures.GaussianMixture(np.zeros((3, 2)), [1, 1, 1], weights)
    counts = [int(count) for count in mixture.counts(n)]
    total = sum(map(Fraction, weights))
    assert sum(counts) == n
    for count, weight in zip(counts, weights, strict=True):
        assert abs(count - Fraction(weight) * n / total) < 1
        assert weight > 0.0 or count == 0


def test_counts_beyond_2_to_the_53_are_refused() -> None:
    mixture = mixtures.benchmark(9)
    for n in (2**53 + 1, 10**30, 10**400):
        with pytest.raises(ValueError, match="n must be at most 9007199254740992"):
            mixture.counts(n)
    with pytest.raises(ValueError, match="n must be at most 1000799917193443 for 9 features"):
        mixture.sample(2**53, 0)
    with pytest.raises(ValueError, match="p must be at most 9007199254740992"):
        mixtures.benchmark(10**30)


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ([1e308, 1e308], ValueError, "weights must sum to 1 within 1e-9, got inf"),
        ([1e-300, 1e-300], ValueError, "weights must sum to 1 within 1e-9, got 2e-300"),
        ([0.5, [0.5]], ValueError, "weights must be a rectangular array"),
        (np.ma.masked_array([0.5, 0.5], [0, 1]), TypeError, "weights must not be a masked array"),
    ],
)
def test_hostile_weights(weights: object, error: type[Exception], message: str) -> None:
    with np.errstate(all="raise"), pytest.raises(error, match=message):
        mixtures.GaussianMixture(np.zeros((2, 2)), [1, 1], weights)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("covariances", "error", "message"),
    [
        ({0: 1.0, 1: 2.0}, TypeError, "covariances must be a sequence"),
        ({1.0, 2.0}, TypeError, "covariances must be a sequence"),
        ([1e300, 1.0], ValueError, r"covariances\[0\] must be at most 1e\+100, got 1e\+300"),
        ([1.0, np.eye(2) * 1e200], ValueError, r"covariances\[1\] must be at most 1e\+100 in size"),
        ([1.0, np.ma.ones(2)], TypeError, r"covariances\[1\] must not be a masked array"),
        ([1.0, [[1, 2], [3]]], ValueError, r"covariances\[1\] must be a rectangular array"),
        ([10**400, 1.0], ValueError, r"covariances\[0\] must be below 1\.8e308"),
    ],
)
def test_hostile_covariances(covariances: object, error: type[Exception], message: str) -> None:
    with np.errstate(all="raise"), pytest.raises(error, match=message):
        mixtures.GaussianMixture(np.zeros((2, 2)), covariances, [0.5, 0.5])  # type: ignore[arg-type]


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_data_beyond_the_range_of_scales_are_refused(factor: float) -> None:
    rows, labels = factor * np.ones((8, 2)), [0] * 4 + [1] * 4
    with np.errstate(all="raise"), pytest.raises(ValueError, match=r"X.* 1e\+50"):
        mixtures.empirical(rows, labels)
    with pytest.raises(ValueError, match=r"means must be at most 1e\+50 in size, got 1e\+200"):
        mixtures.benchmark(9, mean=1e200)
    with pytest.raises(ValueError, match="tau0 must lie between 1e-50"):
        drawn = mixtures.benchmark(9).sample(4, 0).statistics
        dataclasses.replace(drawn, tau0=factor)


@pytest.mark.parametrize("factor", [1e-49, 1e-20, 1e20, 1e48])
def test_statistics_scale_with_the_data_in_a_strict_numpy(factor: float) -> None:
    drawn = mixtures.benchmark(20).sample(12, 0)
    with np.errstate(all="raise"):
        found = mixtures.empirical(factor * drawn.X, drawn.labels).statistics
        mixtures.gaussian_twin(factor * drawn.X, drawn.labels).sample(12, 0)
    plain = mixtures.empirical(drawn.X, drawn.labels).statistics
    # Each entry is a sum of at most 20 x 12 products; its rounding is relative to the largest.
    assert found.tau0 == pytest.approx(factor * plain.tau0, rel=1e-13)
    size = float(np.abs(plain.T).max())
    np.testing.assert_allclose(found.T / factor**2 / factor**2, plain.T, atol=1e-12 * size)


def test_masked_and_ragged_labels_are_refused() -> None:
    rows = np.random.default_rng(0).standard_normal((8, 2))
    with pytest.raises(TypeError, match="labels must not be a masked array"):
        mixtures.empirical(rows, np.ma.zeros(8, int))
    with pytest.raises(ValueError, match="labels must be a rectangular array"):
        mixtures.empirical(rows, [[0], [1, 2]] * 4)


def test_counts_may_be_numpy_integers_of_any_width() -> None:
    mixture = mixtures.benchmark(9)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(mixture.sample(np.int8(100), 0).X, mixture.sample(100, 0).X)  # type: ignore[arg-type]
