"""The study of spectra: its distance and alignment on known matrices, and what its rows hold."""

import numpy as np
import pytest

from implicitnn import activations, equivalents, kernels
from implicitnn.specs import DEQ
from implicitnn.studies import STUDIES, kernel_spectra

CELL = {"data": "mixture", "n": 80, "activation": "relu", "source": "embedded"}


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((40, 40)))[0]
    return Q @ np.diag(np.r_[9.0, 8.0, np.linspace(1, 2, 38)]) @ Q.T


def test_equal_matrices_agree(matrix):
    found = kernel_spectra.compare(matrix, matrix, "x")
    assert found["x_distance"] == pytest.approx(0.0, abs=1e-12)
    assert found["x_alignment"] == pytest.approx(1.0)
    assert found["x_first_alignment"] == pytest.approx(1.0)
    assert found["x_largest"] == pytest.approx(9.0)
    assert found["x_smallest"] == pytest.approx(1.0)


def test_shift_moves_eigenvalues_only(matrix):
    found = kernel_spectra.compare(matrix, matrix + 0.3 * np.eye(40), "x")
    assert found["x_distance"] == pytest.approx(0.3 / (np.trace(matrix) / 40))
    assert found["x_alignment"] == pytest.approx(1.0)
    assert found["x_largest_equivalent"] - found["x_largest"] == pytest.approx(0.3)


def test_swapped_outliers_keep_the_span():
    first = np.diag([9.0, 8.0, 1.0, 1.1, 1.2, 1.3])
    second = np.diag([8.0, 9.0, 1.0, 1.1, 1.2, 1.3])
    found = kernel_spectra.compare(first, second, "x")
    assert found["x_first_alignment"] == pytest.approx(0.0, abs=1e-12)
    assert found["x_alignment"] == pytest.approx(1.0)
    assert found["x_distance"] == pytest.approx(0.0, abs=1e-12)


def test_distance_matches_sorted_values():
    assert kernel_spectra.distance(np.array([3.0, 1.0]), np.array([2.0, 3.0])) == 0.25


def test_row_equals_a_dense_computation():
    found = kernel_spectra.row(CELL, 3)
    sample = kernel_spectra.draw("mixture", 80, 3, source="embedded")
    assert sample.X.shape == (80, 100)
    spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    for name, exact, equivalent in [
        ("ck", kernels.ck(spec, sample.X), equivalents.ck(spec, sample)),
        ("ntk", kernels.ntk(spec, sample.X), equivalents.ntk(spec, sample)),
    ]:
        (values, U), (other, V) = np.linalg.eigh(exact), np.linalg.eigh(equivalent)
        expected = np.abs(values - other).mean() / values.mean()
        assert found[f"{name}_distance"] == pytest.approx(expected, rel=1e-9)
        cosine = np.linalg.svd(U[:, -2:].T @ V[:, -2:], compute_uv=False).min()
        assert found[f"{name}_alignment"] == pytest.approx(cosine, rel=1e-7)
        assert found[f"{name}_smallest_equivalent"] == pytest.approx(other[0], rel=1e-9)


def test_spectra_approach_on_the_mixture():
    small, large = (
        np.mean([kernel_spectra.row(CELL | {"n": n}, seed)["ck_distance"] for seed in range(3)])
        for n in (64, 400)
    )
    assert large < 0.5 * small


def test_digits_and_twin_are_drawn_as_named():
    for data in kernel_spectra.IMAGES:
        assert kernel_spectra.draw(data, 60, 0, source="embedded").X.shape == (60, 784)
    with pytest.raises(ValueError, match="data must be"):
        kernel_spectra.draw("noise", 60, 0, source="embedded")


def test_grids_cover_the_declared_range():
    cells = kernel_spectra.STUDY.grids["paper"]
    sizes = {cell["n"] for cell in cells if cell["data"] == "mixture"}
    assert max(sizes) >= 8 * min(sizes)
    assert {cell["data"] for cell in cells} == {"mixture", *kernel_spectra.IMAGES}
    assert all(cell["source"] == "embedded" for cell in kernel_spectra.STUDY.grids["quick"])
    assert STUDIES["kernel_spectra"] is kernel_spectra.STUDY
