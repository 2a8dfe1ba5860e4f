"""The studies behind Theorems 1 and 2: what their rows hold, and that they see what they should."""

import numpy as np
import pytest

from implicitnn import activations, equivalents, kernels
from implicitnn.specs import DEQ
from implicitnn.studies import STUDIES, kernel_errors, ntk_weights

CELL = {"activation": "relu", "mean": 8.0, "n": 96}


def assert_row_holds(row, name, exact, equivalent):
    norm = np.abs(np.linalg.eigvalsh(exact)).max()
    error = np.abs(np.linalg.eigvalsh(exact - equivalent)).max()
    assert row[f"{name}_norm"] == pytest.approx(norm, rel=1e-5)
    assert row[f"{name}_absolute"] == pytest.approx(error, rel=1e-5)
    assert row[f"{name}_relative"] == pytest.approx(error / norm, rel=1e-5)


@pytest.fixture(scope="module")
def relu_row():
    return kernel_errors.row(CELL, 3)


def test_row_equals_a_dense_computation(relu_row):
    sample = kernel_errors.draw(96, 8.0, 3)
    spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    for name, exact, equivalent in [
        ("ck", kernels.ck(spec, sample.X), equivalents.ck(spec, sample)),
        ("ntk", kernels.ntk(spec, sample.X), equivalents.ntk(spec, sample)),
        (
            "ntk_all",
            kernels.ntk(spec, sample.X, params="all"),
            equivalents.ntk(spec, sample, params="all"),
        ),
    ]:
        assert_row_holds(relu_row, name, exact, equivalent)


def test_row_holds_the_stated_scale_as_well(relu_row):
    stated = kernel_errors.draw(96, 8.0, 3, scale="covariance")
    spec = DEQ(activations.relu, 0.2).at(stated.statistics.tau0)
    exact = kernels.ck_and_ntk(spec, stated.X)
    name = "ck_covariance_scale"
    assert_row_holds(relu_row, name, exact.ck, equivalents.ck(spec, stated))
    name = "ntk_covariance_scale"
    assert_row_holds(relu_row, name, exact.ntk, equivalents.ntk(spec, stated))


def test_row_holds_the_published_formulas(relu_row):
    sample = kernel_errors.draw(96, 8.0, 3)
    spec = DEQ(activations.relu, 0.2).at(sample.statistics.tau0)
    exact = kernels.ck(spec, sample.X)
    for name, formula in kernel_errors.FORMULAS.items():
        equivalent = equivalents.ck(spec, sample, formula=formula)
        error = np.abs(np.linalg.eigvalsh(exact - equivalent)).max()
        assert relu_row[f"{name}_absolute"] == pytest.approx(error, rel=1e-5)
        assert relu_row[f"{name}_relative"] == pytest.approx(error / relu_row["ck_norm"], rel=1e-5)


def test_floor_of_the_diagonal_term_is_its_coefficient(relu_row):
    sample = kernel_errors.draw(96, 8.0, 3)
    tau0 = sample.statistics.tau0
    alpha3 = equivalents.coefficients(DEQ(activations.relu, 0.2).at(tau0)).alpha3
    assert relu_row["floor_diagonal"] == pytest.approx(tau0**4 * alpha3, rel=1e-6)


def test_same_data_for_all_activations_and_other_data_for_other_seeds():
    first, second = kernel_errors.draw(64, 8.0, 0), kernel_errors.draw(64, 8.0, 1)
    stated = kernel_errors.draw(64, 8.0, 0, scale="covariance")
    assert np.array_equal(first.X, stated.X)
    assert first.statistics.tau0 > stated.statistics.tau0
    assert not np.array_equal(first.X, second.X)
    rows = [kernel_errors.row(CELL | {"activation": name, "n": 64}, 0) for name in ("relu", "tanh")]
    assert rows[0]["tau0"] == rows[1]["tau0"]


def test_odd_activation_has_no_floors():
    row = kernel_errors.row(CELL | {"activation": "tanh"}, 0)
    assert row["floor_diagonal"] < 1e-12
    assert row["floor_centring"] < 1e-12


def test_error_falls_with_the_size():
    errors = [
        np.mean([kernel_errors.row(CELL | {"n": n}, seed)["ck_absolute"] for seed in range(4)])
        for n in (64, 512)
    ]
    assert errors[1] < 0.6 * errors[0]


def test_grids_cover_the_declared_range():
    cells = kernel_errors.STUDY.grids["paper"]
    sizes = sorted({cell["n"] for cell in cells})
    assert sizes[-1] >= 32 * sizes[0]
    large = [cell for cell in cells if cell["mean"] == 8.0]
    assert {cell["activation"] for cell in large} == set(kernel_errors.ACTIVATIONS)
    assert len(kernel_errors.STUDY.seeds["paper"]) == 10
    assert STUDIES["kernel_errors"] is kernel_errors.STUDY
    assert STUDIES["ntk_weights"] is ntk_weights.STUDY


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_simulation_tells_the_two_formulas_apart(name):
    rows = [ntk_weights.row({"activation": name, "width": 500}, seed) for seed in range(40, 52)]
    count = len(rows)
    for weights, other in [("published", "all"), ("all", "published")]:
        for entries in ("diagonal", "rest"):
            right = np.array([r[f"simulated_{weights}_against_{weights}_{entries}"] for r in rows])
            wrong = np.array([r[f"simulated_{weights}_against_{other}_{entries}"] for r in rows])
            # The deviation of a width-500 network is biased by O(1/500).
            assert abs(right.mean()) < 5 * right.std(ddof=1) / np.sqrt(count) + 0.01
            assert abs(wrong.mean()) > 8 * wrong.std(ddof=1) / np.sqrt(count)
