"""Norms, extreme pairs, alignment and histograms against dense linear algebra."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, aslinearoperator

from implicitnn import activations, equivalents, mixtures, spectra
from implicitnn._rmt import lanczos as _lanczos
from implicitnn._rmt.lowrank import LowRankPlusDiagonal
from implicitnn.errors import AccuracyError
from implicitnn.specs import DEQ


def symmetric(n: int, seed: int = 0) -> np.ndarray:
    A = np.random.default_rng(seed).standard_normal((n, n)) / np.sqrt(n)
    return (A + A.T) / np.sqrt(2)


def with_spectrum(values: np.ndarray, seed: int = 0) -> np.ndarray:
    Q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(values),) * 2))
    A = (Q * values) @ Q.T
    return (A + A.T) / 2


# --- operator norm --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 10, 64, 65, 300])
def test_norm_of_arrays_and_operators(n: int) -> None:
    A = symmetric(n, n)
    truth = np.abs(np.linalg.eigvalsh(A)).max()
    # A semicircle has a crowded edge, the hard case for Lanczos.
    assert spectra.operator_norm(A) == pytest.approx(truth, rel=1e-8)
    assert spectra.operator_norm(-A) == pytest.approx(truth, rel=1e-8)
    assert spectra.operator_norm(aslinearoperator(A)) == pytest.approx(truth, rel=1e-8)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 90), st.integers(0, 10**6), st.floats(1e-9, 1e9))
def test_norm_scales_and_ignores_order(n: int, seed: int, factor: float) -> None:
    A = symmetric(n, seed)
    norm = spectra.operator_norm(A)
    assert spectra.operator_norm(factor * A) == pytest.approx(factor * norm, rel=1e-7)
    order = np.random.default_rng(seed).permutation(n)
    assert spectra.operator_norm(A[np.ix_(order, order)]) == pytest.approx(norm, rel=1e-7)


@pytest.mark.parametrize("size", [1e-200, 1e-14, 1.0, 1e150])
def test_norm_keeps_its_digits_at_any_magnitude(size: float) -> None:
    values = np.linspace(-1.0, 0.9, 120)
    assert spectra.operator_norm(size * with_spectrum(values)) == pytest.approx(size, rel=1e-9)


def test_norm_of_opposite_extremes_and_of_multiples_of_the_identity() -> None:
    values = np.r_[-1.0, np.linspace(-0.5, 0.5, 150), 1.0]
    assert spectra.operator_norm(with_spectrum(values)) == pytest.approx(1.0, rel=1e-9)
    assert spectra.operator_norm(-2.5 * np.eye(200)) == pytest.approx(2.5, rel=1e-14)


@pytest.mark.parametrize("n", [1, 20, 200])
def test_zero_matrix_has_norm_zero(n: int) -> None:
    assert spectra.operator_norm(np.zeros((n, n))) == 0.0
    assert spectra.operator_norm(aslinearoperator(np.zeros((n, n)))) == 0.0


def test_equal_seeds_give_equal_bits_and_seeds_agree_to_tolerance() -> None:
    A = symmetric(150, 1)
    assert spectra.operator_norm(A, rng=3) == spectra.operator_norm(A, rng=3)
    same = spectra.operator_norm(A, rng=np.random.default_rng(3))
    assert same == pytest.approx(spectra.operator_norm(A, rng=4), rel=1e-8)


def test_difference_of_arrays_and_operators() -> None:
    A, B = symmetric(130, 1), symmetric(130, 2)
    truth = np.abs(np.linalg.eigvalsh(A - B)).max()
    for left in (A, aslinearoperator(A)):
        for right in (B, aslinearoperator(B)):
            norm = spectra.operator_norm(spectra.difference(left, right))
            assert norm == pytest.approx(truth, rel=1e-8)
    assert spectra.operator_norm(spectra.difference(A, A)) == 0.0
    with pytest.raises(ValueError, match="A and B must have the same shape"):
        spectra.difference(A, B[:5, :5])


def test_low_rank_operator_never_becomes_square() -> None:
    rng, n = np.random.default_rng(0), 6000
    X, V = rng.standard_normal((n, 5)), rng.standard_normal((n, 2))
    A = LowRankPlusDiagonal(0.3, 1.0, X, V, np.eye(2))
    joint = np.column_stack([X, V])
    truth = 0.3 + np.linalg.eigvalsh(joint.T @ joint)[-1]
    tracemalloc.start()
    norm = spectra.operator_norm(A)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert norm == pytest.approx(truth, rel=1e-10)
    assert peak < 8 * n * 200


def failing(*args: object, **kwargs: object) -> None:
    raise ArpackNoConvergence("no", np.zeros(0), np.zeros((0, 0)))


def test_dense_way_out_when_lanczos_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    A = symmetric(80, 4)
    truth = np.abs(np.linalg.eigvalsh(A)).max()
    monkeypatch.setattr(_lanczos, "eigsh", failing)
    assert spectra.operator_norm(A) == pytest.approx(truth, rel=1e-13)
    assert spectra.operator_norm(aslinearoperator(A)) == pytest.approx(truth, rel=1e-13)
    n = _lanczos.DENSE_LIMIT + 1
    big = LinearOperator((n, n), matvec=lambda v: 2 * v, dtype=np.float64)
    with pytest.raises(AccuracyError, match=f"did not reach tol = 1e-08 .* n = {n}"):
        spectra.operator_norm(big)


@pytest.mark.parametrize(
    "function",
    [
        spectra.operator_norm,
        spectra.eigenvalues,
        lambda A: spectra.extreme_eigenpairs(A, 1),
        lambda A: spectra.difference(A, A),
    ],
)
def test_bad_matrices(function: object) -> None:
    assert callable(function)
    bad = np.eye(3)
    bad[0, 1] = 0.5
    with pytest.raises(ValueError, match=r"A must be symmetric, got \|A - A\^T\| up to 0.5"):
        function(bad)
    with pytest.raises(ValueError, match=r"A must be symmetric, got .*Av"):
        function(aslinearoperator(bad))
    with pytest.raises(ValueError, match=r"A must be finite, got nan at index \(0, 1\)"):
        function(np.where(bad == 0.5, np.nan, bad))
    with pytest.raises(ValueError, match="A must be finite"):
        function(LinearOperator((3, 3), matvec=lambda v: np.nan * v, dtype=np.float64))
    with pytest.raises(ValueError, match=r"A must be square and not empty, got shape \(2, 3\)"):
        function(np.ones((2, 3)))
    with pytest.raises(ValueError, match="A must be square"):
        function(aslinearoperator(np.ones((2, 3))))
    with pytest.raises(ValueError, match="A must not be empty"):
        function(np.ones((0, 0)))
    with pytest.raises(ValueError, match="A must have 2 axes"):
        function(np.ones(3))
    with pytest.raises(TypeError, match="A must be real, got complex"):
        function(1j * np.eye(3))
    with pytest.raises(TypeError, match="A must be real, got complex"):
        function(aslinearoperator(1j * np.eye(3)))


def test_asymmetry_is_found_in_any_block() -> None:
    A = np.eye(1100)
    A[1090, 520] = 1e-3
    with pytest.raises(ValueError, match=r"up to 0\.001"):
        spectra.operator_norm(A)


def test_float32_rounding_is_not_asymmetry() -> None:
    X = np.random.default_rng(0).standard_normal((90, 30)).astype(np.float32)
    A = X @ X.T
    A[0, 1] *= np.float32(1 + 1e-6)
    assert spectra.operator_norm(A) == pytest.approx(np.linalg.norm(X, 2) ** 2, rel=1e-5)
    with pytest.raises(ValueError, match="symmetric"):
        spectra.operator_norm(A.astype(np.float64))


def test_bad_options() -> None:
    with pytest.raises(ValueError, match="tol must be positive"):
        spectra.operator_norm(np.eye(2), tol=0.0)
    with pytest.raises(TypeError, match=r"rng must be an integer seed or a .*Generator, got None"):
        spectra.operator_norm(np.eye(100), rng=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="which must be one of 'largest'"):
        spectra.extreme_eigenpairs(np.eye(2), 1, "LA")
    with pytest.raises(ValueError, match="asks for 4 of 3 eigenvalues"):
        spectra.extreme_eigenpairs(np.eye(3), 2, "both")
    with pytest.raises(ValueError, match="k must be at least 1"):
        spectra.extreme_eigenpairs(np.eye(3), 0)


# --- extreme pairs --------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [12, 150])
@pytest.mark.parametrize("wrap", [np.asarray, aslinearoperator])
@pytest.mark.parametrize("which", spectra.WHICH)
def test_extreme_pairs_in_the_promised_order(n: int, wrap: object, which: str) -> None:
    assert callable(wrap)
    A = with_spectrum(np.r_[-7.0, -5.0, -4.0, np.linspace(-1, 1, n - 6), 3.0, 4.5, 6.0])
    expected = {
        "largest": [6, 4.5, 3],
        "smallest": [-7, -5, -4],
        "both": [-7, -5, -4, 3, 4.5, 6],
        "magnitude": [-7, 6, -5],
    }[which]
    values, vectors = spectra.extreme_eigenpairs(wrap(A), 3, which)
    assert np.allclose(values, expected, atol=1e-9)
    assert np.allclose(A @ vectors, vectors * values, atol=1e-8)
    assert np.allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-9)
    assert (np.take_along_axis(vectors, np.abs(vectors).argmax(0)[None], 0) > 0).all()


def test_all_pairs_and_all_values() -> None:
    A = symmetric(100, 3)
    pairs = spectra.extreme_eigenpairs(A, 100, "smallest")
    assert np.allclose(pairs.values, spectra.eigenvalues(A), atol=1e-12)
    assert np.allclose(spectra.eigenvalues(aslinearoperator(A)), np.linalg.eigvalsh(A), atol=1e-12)
    zero = spectra.extreme_eigenpairs(np.zeros((100, 100)), 2)
    assert zero.values.tolist() == [0.0, 0.0]
    assert np.allclose(zero.vectors.T @ zero.vectors, np.eye(2))


def test_equal_entries_do_not_make_the_sign_random() -> None:
    v = np.full(80, -1.0) / np.sqrt(80)
    v[1::2] *= 1 - 1e-14
    pair = spectra.extreme_eigenpairs(np.outer(v, v), 1)
    assert pair.vectors[0, 0] > 0


# --- alignment ------------------------------------------------------------------------------------


def test_alignment_of_columns_and_vectors() -> None:
    U = np.array([[1.0, 0.0], [0.0, 2.0]])
    V = np.array([[-3.0, 1.0], [0.0, 1.0]])
    assert np.allclose(spectra.alignment(U, V), [1.0, np.sqrt(0.5)])
    assert float(spectra.alignment(U[:, 1], V[:, 1])) == pytest.approx(np.sqrt(0.5))
    with pytest.raises(ValueError, match="same shape"):
        spectra.alignment(U, V[:, :1])
    with pytest.raises(ValueError, match="V must not have a zero column"):
        spectra.alignment(U, 0 * V)
    with pytest.raises(ValueError, match="U must be finite"):
        spectra.alignment(np.nan * U, V)


def test_subspace_alignment_ignores_the_basis() -> None:
    rng = np.random.default_rng(0)
    U = rng.standard_normal((20, 3))
    assert np.allclose(spectra.subspace_alignment(U, U @ rng.standard_normal((3, 3))), 1.0)
    angle = 0.3
    plane = np.eye(4)[:, :2]
    tilted = plane.copy()
    tilted[:, 1] = [0.0, np.cos(angle), np.sin(angle), 0.0]
    assert np.allclose(spectra.subspace_alignment(plane, tilted), [1.0, np.cos(angle)])
    assert np.allclose(spectra.subspace_alignment(plane, tilted[:, 1]), [np.cos(angle)])
    with pytest.raises(ValueError, match="V must have linearly independent columns"):
        spectra.subspace_alignment(plane, np.ones((4, 2)))
    with pytest.raises(ValueError, match="equally many rows, got 4 and 3"):
        spectra.subspace_alignment(plane, np.eye(3))


def test_align_signs() -> None:
    rng = np.random.default_rng(0)
    V = rng.standard_normal((9, 4))
    flips = np.array([1, -1, -1, 1])
    assert np.array_equal(spectra.align_signs(V * flips, V), V)
    assert np.array_equal(spectra.align_signs(-V[:, 0], V[:, 0]), V[:, 0])
    with pytest.raises(ValueError, match="U and reference must have the same shape"):
        spectra.align_signs(V, V[:3])


# --- histograms -----------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60),
    st.integers(1, 30),
    st.sampled_from([None, "gap"]),
)
def test_histogram_integrates_to_the_fraction_inside(
    values: list[float], bins: int, outliers: str | None
) -> None:
    h = spectra.histogram(values, bins, outliers=outliers)
    inside = float(h.density @ np.diff(h.edges))
    assert inside == pytest.approx(1 - h.outliers.size / len(values), abs=1e-9)
    assert h.count == len(values)
    assert h.edges.shape == (bins + 1,)
    if outliers is None:
        assert h.outliers.size == 0


def test_gap_rule_finds_outliers_on_both_sides_and_only_there() -> None:
    semicircle = np.linalg.eigvalsh(symmetric(300, 0))
    assert spectra.histogram(semicircle, outliers="gap").outliers.size == 0
    h = spectra.histogram(np.r_[9.0, semicircle, -4.0, 9.5], outliers="gap")
    assert h.outliers.tolist() == [-4.0, 9.0, 9.5]
    assert h.edges[0] == semicircle[0]
    assert h.edges[-1] == semicircle[-1]


@pytest.mark.parametrize("value", [0.0, 1.0, -1e20, 1e-300])
def test_histogram_of_indistinguishable_values(value: float) -> None:
    h = spectra.histogram([value, np.nextafter(value, np.inf)], 7)
    assert h.density @ np.diff(h.edges) == pytest.approx(1.0)
    assert h.edges[0] < value < h.edges[-1]


def test_given_edge_rule() -> None:
    h = spectra.histogram([0.0, 1.0, 2.0, 3.0], 4, outliers=(0.0, 2.0))
    assert h.outliers.tolist() == [3.0]
    assert h.density @ np.diff(h.edges) == pytest.approx(0.75)


def test_histogram_matches_a_known_density() -> None:
    values = np.linalg.eigvalsh(symmetric(1000, 5))
    h = spectra.histogram(values, 20)
    x = (h.edges[1:] + h.edges[:-1]) / 2
    semicircle = np.sqrt(np.maximum(4 - x**2, 0)) / (2 * np.pi)
    assert np.abs(h.density - semicircle)[1:-1].max() < 0.02


def test_bad_histograms() -> None:
    for kwargs, message in [
        ({"outliers": "edge"}, "outliers must be one of 'gap'"),
        ({"outliers": (2.0, 1.0)}, "low < high"),
        ({"outliers": (8.0, 9.0)}, "leaves no eigenvalue in the bins"),
        ({"bins": 0}, "bins must be at least 1"),
        ({"gap": 0.0}, "gap must be positive"),
    ]:
        with pytest.raises(ValueError, match=message):
            spectra.histogram([1.0, 2.0], **kwargs)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="outliers must be None, 'gap' or"):
        spectra.histogram([1.0], outliers=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="values must not be empty"):
        spectra.histogram([])
    with pytest.raises(ValueError, match="values must be finite"):
        spectra.histogram([np.nan])


# --- numbers at the edge of float64 ---------------------------------------------------------------


@pytest.mark.parametrize("factor", [2.0**-1000, 1e-300, 1e-160, 1e160, 1e300, 2.0**1020])
@pytest.mark.parametrize("n", [5, 200])
@pytest.mark.parametrize("wrap", [np.asarray, aslinearoperator])
def test_spectra_of_any_size_in_a_strict_numpy(factor: float, n: int, wrap: object) -> None:
    A = symmetric(n)
    with np.errstate(all="raise"):
        B = wrap(factor * A)  # type: ignore[operator]
        norm, values = spectra.operator_norm(B), spectra.eigenvalues(B)
        pairs = spectra.extreme_eigenpairs(B, 2)
        gap = spectra.operator_norm(spectra.difference(B, aslinearoperator(np.zeros((n, n)))))
    truth = np.linalg.eigvalsh(A)
    size = np.abs(truth).max()
    assert norm / factor == pytest.approx(size, rel=1e-8)
    assert gap / factor == pytest.approx(size, rel=1e-8)
    # Backward stable to n times the unit rounding; 1e-12 leaves a factor of 20.
    np.testing.assert_allclose(values / factor, truth, atol=1e-12 * size)
    np.testing.assert_allclose(pairs.values / factor, truth[::-1][:2], atol=1e-9 * size)
    np.testing.assert_allclose(np.linalg.norm(pairs.vectors, axis=0), 1.0, rtol=1e-12)


@pytest.mark.parametrize("n", [5, 200])
def test_a_spectrum_beyond_float64_is_refused(n: int) -> None:
    A = np.full((n, n), 1e308)
    for function in (spectra.operator_norm, spectra.eigenvalues):
        with np.errstate(all="raise"), pytest.raises(ValueError, match=r"A has eigenvalues beyond"):
            function(A)
    with np.errstate(all="raise"), pytest.raises(ValueError, match="product with a vector is not"):
        spectra.operator_norm(aslinearoperator(A))
    skew = np.triu(np.full((n, n), 1.7e308), 1) - np.tril(np.full((n, n), 1.7e308), -1)
    with np.errstate(all="raise"), pytest.raises(ValueError, match="A must be symmetric"):
        spectra.eigenvalues(skew)


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e200, 1e300])
def test_alignment_of_vectors_of_any_size(factor: float) -> None:
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((2, 30, 3))
    mixed = [factor, 1.0, 1 / factor]
    with np.errstate(all="raise"):
        one = spectra.alignment(factor * U, V * mixed)
        single = spectra.alignment(factor * U[:, 0], V[:, 0])
        angles = spectra.subspace_alignment(factor * U, V * mixed)
        signs = spectra.align_signs(factor * U, factor * V) / factor
    # Sums of 30 products: 1e-14 is 45 unit roundings.
    np.testing.assert_allclose(one, spectra.alignment(U, V), atol=1e-14)
    np.testing.assert_allclose(single, spectra.alignment(U[:, 0], V[:, 0]), atol=1e-14)
    np.testing.assert_allclose(angles, spectra.subspace_alignment(U, V), atol=1e-14)
    np.testing.assert_allclose(signs, spectra.align_signs(U, V), rtol=1e-14)


def test_masked_ragged_and_complex_matrices_are_refused() -> None:
    masked = np.ma.masked_array(np.eye(2), [[0, 0], [0, 1]])
    for function in (spectra.operator_norm, spectra.eigenvalues):
        with pytest.raises(TypeError, match="A must not be a masked array"):
            function(masked)
        with pytest.raises(ValueError, match="A must be a rectangular array"):
            function([[1, 2], [3]])
    with pytest.raises(TypeError, match="U must not be a masked array"):
        spectra.alignment(masked, np.eye(2))
    lying = LinearOperator((3, 3), matvec=lambda v: 1j * v, dtype=np.float64)
    with pytest.raises(TypeError, match="A must be real, its product with a vector has dtype comp"):
        spectra.operator_norm(lying)


def test_histograms_at_the_edge() -> None:
    with np.errstate(all="raise"):
        for values in ([5e-324, 0.0], [1e-300, 2e-300], [1e299, 2e299]):
            h = spectra.histogram(values, 4)
            assert float(h.density @ np.diff(h.edges)) == pytest.approx(1.0, rel=1e-12)
        with pytest.raises(ValueError, match=r"values in the bins must be at most 1e\+300 in size"):
            spectra.histogram([-1e308, 1e308])
    with pytest.raises(ValueError, match="bins must be at most 10000000"):
        spectra.histogram([1.0, 2.0], 10**30)


# --- multiple eigenvalues -------------------------------------------------------------------------


def expected_values(spectrum: np.ndarray, k: int, which: str) -> np.ndarray:
    low = np.sort(spectrum)
    return {"largest": low[::-1][:k], "smallest": low[:k], "both": np.r_[low[:k], low[-k:]]}[which]


@pytest.mark.parametrize("n", [200, 300])
@pytest.mark.parametrize("copies", [2, 3, 5, 10])
@pytest.mark.parametrize("wrap", [np.asarray, aslinearoperator])
@pytest.mark.parametrize("make", [np.diag, with_spectrum])
def test_multiple_eigenvalues_are_counted(n: int, copies: int, wrap: object, make: object) -> None:
    assert callable(wrap)
    assert callable(make)
    spectrum = np.r_[np.full(copies, 3.0), np.linspace(0, 2, n - 2 * copies), np.full(copies, -3.5)]
    A = make(spectrum)
    for which in ("largest", "smallest", "both"):
        pairs = spectra.extreme_eigenpairs(wrap(A), 5, which)
        # ten times the residual 1e-10 of the norm
        assert np.allclose(pairs.values, expected_values(spectrum, 5, which), atol=4e-9)
        assert np.allclose(A @ pairs.vectors, pairs.vectors * pairs.values, atol=1e-8)
        assert np.allclose(pairs.vectors.T @ pairs.vectors, np.eye(len(pairs.values)), atol=1e-9)
    sizes = np.abs(spectra.extreme_eigenpairs(wrap(A), 12, "magnitude").values)
    assert np.allclose(sizes, np.sort(np.abs(spectrum))[::-1][:12], atol=4e-9)


def test_a_single_eigenvalue_zero_at_the_end_is_found() -> None:
    spectrum = np.r_[np.linspace(0.0, 2.0, 398), 3.0, 5.0]
    A = aslinearoperator(np.diag(spectrum))
    for k, which in ((1, "smallest"), (2, "smallest"), (1, "both"), (2, "both")):
        pairs = spectra.extreme_eigenpairs(A, k, which)
        assert np.allclose(pairs.values, expected_values(spectrum, k, which), atol=5e-9)


def test_the_degenerate_bottom_of_an_equivalent_is_counted() -> None:
    sample = mixtures.benchmark(100).sample(400, 0)
    spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    operator = equivalents.ck_operator(spec, sample)
    truth = np.linalg.eigvalsh(operator.todense())
    for which in ("smallest", "both"):
        pairs = spectra.extreme_eigenpairs(operator, 4, which)
        want = expected_values(truth, 4, which)
        assert np.allclose(pairs.values, want, atol=1e-9 * np.abs(truth).max())
