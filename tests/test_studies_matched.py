"""Studies of matched nets: the best combination, the rows, and what a row must not miss."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from implicitnn import activations, design, kernels
from implicitnn.errors import AccuracyError
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import STUDIES, _matched, matched_h_tanh, matched_l_relu

CELL = {"data": "near mixture", "source": "embedded", "n": 128}


@pytest.fixture(scope="module")
def l_relu_row():
    return matched_l_relu.row(CELL, 4)


@pytest.fixture(scope="module")
def h_tanh_row():
    return matched_h_tanh.row(CELL, 4)


def spectral(matrix):
    return np.abs(np.linalg.eigvalsh(matrix)).max()


def test_best_factor_is_the_minimum_of_the_spectral_norm():
    rng = np.random.default_rng(0)
    A, B = (F @ F.T for F in rng.normal(size=(2, 80, 200)))
    found = _matched.best(A, [B], gap=1e-6)
    reference = minimize_scalar(lambda c: spectral(A - c * B), (0.1, 1.0), tol=1e-10)
    assert found.distance == pytest.approx(reference.fun, rel=1e-5)
    assert found.distance == pytest.approx(spectral(A - found.coefficients[0] * B), rel=1e-8)
    assert found.bound <= reference.fun * (1 + 1e-8)


def test_best_combination_finds_the_planted_one():
    rng = np.random.default_rng(1)
    parts = [F @ F.T / 40 for F in rng.normal(size=(3, 70, 90))]
    planted = np.array([0.7, 0.2, 1.5])
    found = _matched.best(np.tensordot(planted, parts, 1) + 1e-3 * np.eye(70), parts, gap=0.2)
    assert found.coefficients == pytest.approx(planted, abs=0.01)
    assert found.distance <= 1e-3 * (1 + 1e-6)


def test_coefficients_stay_non_negative():
    target = np.diag(np.r_[np.full(40, 2.0), np.full(40, -1.0)])
    low, high = (np.diag(np.repeat(ends, 40)) for ends in ([1.0, 0.0], [0.0, 1.0]))
    found = _matched.best(target, [low, high])
    assert found.coefficients[1] == pytest.approx(0.0, abs=1e-12)
    assert found.distance == pytest.approx(1.0, rel=1e-9)


def test_a_gap_that_cannot_close_is_an_error(monkeypatch):
    monkeypatch.setattr(_matched, "_ROUNDS", 1)
    rng = np.random.default_rng(2)
    parts = [F @ F.T for F in rng.normal(size=(3, 70, 90))]
    with pytest.raises(AccuracyError, match="lower bound"):
        _matched.best(parts[0] + parts[1], parts[1:], gap=1e-9)


@pytest.mark.parametrize("data", _matched.DATA)
def test_seed_fixes_the_sample(data):
    first, again, other = (_matched.draw(data, 60, s, "embedded").X for s in (3, 3, 4))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_unknown_data_are_refused():
    with pytest.raises(ValueError, match="data must be one of"):
        _matched.draw("cifar", 60, 0, "embedded")


def test_h_tanh_row_equals_a_dense_computation(h_tanh_row):
    sample = _matched.draw("near mixture", 128, 4, "embedded")
    deq = DEQ(activations.tanh, 0.2, tau0=sample.statistics.tau0)
    exact = kernels.ck(deq, sample.X)
    gap = spectral(exact - kernels.ck(design.match(deq, "hard_tanh").enn, sample.X))
    assert h_tanh_row["matched_absolute"] == pytest.approx(gap, rel=1e-4)
    assert h_tanh_row["matched"] == pytest.approx(gap / spectral(exact), rel=1e-4)
    assert 3 * h_tanh_row["matched"] < h_tanh_row["plain_unscaled"]
    assert h_tanh_row["matched"] < h_tanh_row["unit_design"]


def test_l_relu_row_equals_a_dense_computation(l_relu_row):
    sample = _matched.draw("near mixture", 128, 4, "embedded")
    deq = DEQ(activations.relu, 0.2, tau0=sample.statistics.tau0)
    exact = kernels.ck(deq, sample.X)
    found = design.match(deq, "leaky_relu", layers=2)
    gaps = [
        spectral(exact - kernels.ck(net, sample.X)) / spectral(exact)
        for net in (found.enn, *found.alternatives)
    ]
    assert [l_relu_row["matched"], l_relu_row["other_branch"]] == pytest.approx(gaps, rel=1e-3)
    assert l_relu_row["matched_worst"] == max(l_relu_row["matched"], l_relu_row["other_branch"])
    plain = kernels.ck(ENN([activations.relu], deq.tau0), sample.X)
    rest = spectral(exact - l_relu_row["one_layer_factor"] * plain) / spectral(exact)
    assert l_relu_row["one_layer"] == pytest.approx(rest, rel=1e-3)


def test_controls_are_told_apart_from_the_match(l_relu_row):
    """A wrong design must not pass: a 2 % error in one ray is seen."""
    sample = _matched.draw("near mixture", 128, 4, "embedded")
    deq = DEQ(activations.relu, 0.2, tau0=sample.statistics.tau0)
    first, second = design.match(deq, "leaky_relu", layers=2).enn.layers
    wrong = ENN([design.l_relu(1.02 * first.f.a, first.f.b), second], deq.tau0)
    gap = _matched.norm(kernels.ck(deq, sample.X) - kernels.ck(wrong, sample.X))
    assert gap > 20 * l_relu_row["matched_absolute"]
    assert l_relu_row["one_layer_over_matched"] > 10
    assert l_relu_row["two_layers"] > l_relu_row["one_layer"]
    assert l_relu_row["two_layers_unscaled"] > 0.5


@pytest.mark.parametrize("module", [matched_h_tanh, matched_l_relu])
def test_grids_cover_the_declared_range(module):
    paper = module.STUDY.grids["paper"]
    for data in _matched.DATA:
        sizes = _matched.IMAGE_SIZES if data in _matched.IMAGES else _matched.SIZES
        assert {cell["n"] for cell in paper if cell["data"] == data} == set(sizes)
    assert {cell["data"] for cell in paper} == set(_matched.DATA)
    assert all(cell["source"] == "embedded" for cell in module.STUDY.grids["quick"])
    assert len(module.STUDY.seeds["paper"]) == 10
    assert min(module.STUDY.seeds["quick"]) >= 1000
    assert STUDIES[module.STUDY.name] is module.STUDY
