"""Studies on infinite-depth networks: identities, trajectories, widths, images."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy.io import savemat

from implicitnn import claims
from implicitnn import infinite_depth as deep
from implicitnn._validate import real_array
from implicitnn.infinite_depth import Params, Status
from implicitnn.studies import (
    STUDIES,
    _admissible,
    _binary_images,
    _trajectories,
    depth_training,
    gamma_edge,
    gradient_descent,
    gradient_flow,
    implicit_gradients,
    nonnegative_weights,
    well_posedness,
    width_conditions,
)

NAMES = (
    "well_posedness", "implicit_gradients", "gradient_flow", "gradient_descent",
    "nonnegative_weights", "width_conditions", "gamma_edge", "depth_training",
    "depth_training_variants", "depth_training_svhn",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_paper_cells_are_all_different_and_serve_a_known_claim(name):
    study = STUDIES[name]
    cells = [
        json.dumps([settings, seed], sort_keys=True) for settings, seed in study.cells("paper")
    ]
    assert len(set(cells)) == len(cells)
    known = {claim.id for claim in claims.load()}
    assert set(study.claims) <= known


@pytest.mark.parametrize(
    "module", [well_posedness, gradient_flow, gradient_descent, nonnegative_weights]
)
def test_a_cell_depends_on_settings_and_seed_only(module):
    settings = module.STUDY.cells("quick")[0][0]
    first, again = module.row(settings, 3), module.row(settings, 3)
    assert first == again
    assert first != module.row(settings, 4)


def test_costs_and_data_sets_are_told_for_every_cell():
    for name in NAMES:
        study = STUDIES[name]
        for tier in study.grids:
            for settings, _ in study.cells(tier):
                if study.cost is not None:
                    assert study.cost(settings) > 0
                if study.datasets is not None:
                    full = settings["source"] == "full"
                    assert study.datasets(settings) == ((settings["dataset"],) if full else ())


def test_quick_cells_read_embedded_data_only():
    for name in NAMES:
        for settings, _ in STUDIES[name].cells("quick"):
            assert settings.get("source", "embedded") == "embedded"


@pytest.mark.parametrize("kind", well_posedness.KINDS)
def test_lemma_3_1_holds_in_the_rows(kind):
    row = well_posedness.row({"kind": kind, "rate": 0.8}, 0)
    assert row["contraction"] <= 1 + 1e-10
    assert 0 < row["size"] <= 1 + 1e-10
    assert row["uniqueness"] <= 1e-10
    assert 0 <= row["observed_rate"] <= 0.8 * (1 + 1e-6)


def test_contraction_is_reached_by_nonnegative_weights():
    assert well_posedness.row({"kind": "nonnegative", "rate": 0.5}, 1)["contraction"] > 0.999
    with pytest.raises(ValueError, match="kind must be one of"):
        well_posedness.weights("other", 3, np.random.default_rng(0))


def test_gradients_row_is_at_rounding():
    row = implicit_gradients.row({"N": 8, "m": 16, "rate": 0.5}, 1)
    assert max(row["one_piece"], row["unrolled"], row["gram"]) < 1e-9
    assert row["smallest_step"] <= implicit_gradients.STEP


def test_a_wrong_gradient_would_be_seen():
    params, X, y = implicit_gradients.draw(6, 12, 0.5, 0)
    found = deep.gradients(params, X, y)
    wrong = type(found)(
        found.W, 1.001 * found.A, found.b, found.loss, found.residual, found.forward, found.adjoint
    )
    assert implicit_gradients.differences(params, X, y, found, 0)["one_piece"] < 1e-9
    assert implicit_gradients.differences(params, X, y, wrong, 0)["one_piece"] > 1e-6
    assert implicit_gradients.unrolled(params, X, y, wrong) > 1e-4


def near_a_kink(kind):
    """A draw with one unit 1e-5 before a kink, of Z (0) or of X W (1), and a direction across."""
    params, X, y = implicit_gradients.draw(6, 12, 0.5, 0)
    W, x = params.W.copy(), X[0]

    def drive():
        now = Params(W, params.A, params.b, params.gamma)
        return now, params.gamma * (deep.forward(now, X, tol=1e-15).Z @ params.A)[0]

    # A unit that the others turn off meets the kink of Z, one that they keep on that of X W only.
    unit = int(np.argmax(drive()[1]) if kind else np.argmin(drive()[1]))
    for _ in range(60):
        target = -1e-5 if kind else -drive()[1][unit] - 1e-5
        W[:, unit] += (target - x @ W[:, unit]) * x
    along = tuple(np.zeros_like(a) for a in (W, params.A, params.b))
    along[0][:, unit] = x
    return drive()[0], X, y, along, (kind, 0, unit)


@pytest.mark.parametrize("kind", [0, 1])
def test_a_difference_across_a_kink_is_off_by_the_bias_of_the_kink(kind):
    """The curvature of the loss also jumps: the bias is exact to first order in the step, 1e-4."""
    params, X, y, along, unit = near_a_kink(kind)
    found, h = deep.gradients(params, X, y, tol=1e-15), implicit_gradients.STEP
    exact = implicit_gradients.slope(found, along)
    seen = implicit_gradients.stencil(params, X, y, along, h)
    assert [tuple(found) for found in seen.crossing] == [unit]
    error = seen.derivative - exact
    bias = implicit_gradients.bias(params, X, y, along, seen, h)
    assert abs(error) > 1e-4 * abs(exact)
    assert abs(error - bias) < 1e-2 * abs(error)
    step, inside = implicit_gradients.within(params, X, y, along, seen)
    assert step < 1e-5 and not len(inside.crossing)
    # differences of a loss of order one are off by its rounding over the step
    assert abs(inside.derivative - exact) < 1e-15 * 10 / step


def test_weight_of_a_kink_is_what_the_difference_makes_of_it():
    for t in (-2.5, -1.3, -0.2, 0.3, 0.99, 1.5, 3.0):
        values = [max(s - t, 0.0) for s in (-2, -1, 1, 2)]
        numeric = (8 * (values[2] - values[1]) - (values[3] - values[0])) / 12
        assert implicit_gradients.kink_weight(t) == pytest.approx(numeric - (t < 0), abs=1e-15)


def test_a_unit_at_its_kink_is_an_error_and_not_a_number():
    params = Params(np.eye(2), np.zeros((2, 2)), np.ones(2), 0.5)
    X, y = np.array([[1.0, 0.0]]), np.zeros(1)
    along = (np.ones((2, 2)), np.zeros((2, 2)), np.zeros(2))
    first = implicit_gradients.stencil(params, X, y, along, implicit_gradients.STEP)
    with pytest.raises(RuntimeError, match="nearer to its kink"):
        implicit_gradients.within(params, X, y, along, first)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_designed_starts_satisfy_the_conditions(seed, bias):
    start = _admissible.draw(2 + seed, np.random.default_rng(seed), bias=bias)
    assert start.conditions.descent_holds and start.conditions.flow_holds
    assert bool(start.params.b.any()) is bias
    assert (start.params.A < 0).any()
    np.testing.assert_allclose(start.X @ start.X.T, np.eye(2 + seed), atol=1e-12)


@pytest.mark.parametrize("module", [gradient_flow, gradient_descent])
def test_families_count_as_what_they_are(module):
    kinds = {
        family: module.row({"family": family, "N": 4}, 0)["counts_as"]
        for family in _trajectories.FAMILIES
    }
    assert kinds["designed"] == kinds["designed, b0 not 0"] == "informative"
    assert kinds["random"] == "not admissible"
    assert kinds["random, scaled"] != "not admissible"


def test_informative_trajectories_violate_nothing():
    for seed in range(4):
        row = gradient_descent.row({"family": "designed", "N": 4}, seed)
        assert row["bound_fall"] >= 100
        for name in ("loss_over_bound", "gradients", "features", "size", "moved"):
            assert 0 < row[name] <= 1
        assert row["features"] <= row["features_bare"]
        assert row["sigma_ratio"] >= 1 and row["slack"] >= 1 and row["rate_ratio"] >= 1


def test_a_violation_would_be_seen():
    losses, bound = np.array([1.0, 0.5, 0.3]), np.array([1.0, 0.4, 0.1])
    assert _trajectories.against_bound(losses, bound)["loss_over_bound"] == pytest.approx(3.0)
    fine = _trajectories.against_bound(bound**2, bound)
    assert fine["loss_over_bound"] == pytest.approx(0.4)
    assert fine["rate_ratio"] == pytest.approx(2.0)
    assert _trajectories.kind(99.0, True, True) == "vacuous"
    assert _trajectories.kind(1.0, True, False) == "failed"
    assert _trajectories.kind(1.0, False, False) == "not admissible"


@pytest.mark.parametrize("study", [gradient_descent, gradient_flow])
def test_an_admissible_run_that_fails_is_counted(study, monkeypatch):
    name = "descend" if study is gradient_descent else "flow"
    real = getattr(study.deep, name)

    def broken(*arguments, **options):
        return dataclasses.replace(real(*arguments, **options), status=Status.DIVERGED)

    cell = {"family": "designed", "N": 2}
    assert study.row(cell, 0)["failed"] == 0
    monkeypatch.setattr(study.deep, name, broken)
    found = study.row(cell, 0)
    assert (found["failed"], found["counts_as"]) == (1, "failed")
    assert study.row({"family": "random", "N": 2}, 0)["failed"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_rounding_bounds_the_error_of_the_features(seed):
    """The exact features come from Z (I - gamma A) = Phi in long doubles, for A >= 0."""
    rng = np.random.default_rng(seed)
    params = deep.nonnegative(5, 12, 0.6, rng).scaled(1e4)
    X = rng.standard_normal((4, 5))
    solved = deep.forward(params, X, tol=1e-15)
    level = gradient_descent.rounding(params, X, solved, deep.conditions(params, X, np.ones(4)))
    wide = [np.asarray(a, dtype=np.longdouble) for a in (X, params.W, params.A)]
    Phi = np.maximum(wide[0] @ wide[1], 0)
    exact = Phi
    for _ in range(200):  # 0.6^200 < 1e-44
        exact = Phi + params.gamma * (exact @ wide[2])
    error = float(np.linalg.norm(np.asarray(solved.Z - exact, dtype=float)))
    assert 0 < error <= level
    assert level < 1e-12 * np.linalg.norm(solved.Z)


def test_a_step_of_the_features_that_is_too_long_would_be_seen():
    start = _trajectories.setting({"family": "designed", "N": 4}, 0)
    watch = gradient_descent.Watch(start, start.conditions.eta_max)
    watch(0, start.params)
    p = start.params
    watch(1, Params(p.W * (1 + 1e-3), p.A, p.b, p.gamma))
    assert watch.largest["features"] > 1 and watch.invisible == 0


def test_lemma_5_1_rows_and_the_signed_control():
    for kind in nonnegative_weights.KINDS:
        row = nonnegative_weights.row({"kind": kind, "rate": 0.9}, 2)
        assert (row["error"] < 1e-12) is (kind != "signed")
        if kind != "signed":
            assert row["bound_ratio"] >= 1 - 1e-10


def test_infinite_width_matrix_against_many_units():
    """2,000,000 units: entries have standard error at most 0.5/sqrt(2e6) = 4e-4; five of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3, 4))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    Phi = np.maximum(X @ rng.standard_normal((4, 2_000_000)), 0)
    assert np.abs(Phi @ Phi.T / 2e6 - width_conditions.infinite_width(X)).max() < 2e-3


@pytest.mark.parametrize("name", ["scaled", "standard"])
def test_widths_use_the_conditions_of_the_library(name):
    """The property from N x N matrices is that of conditions() on the m x m network."""
    rng = np.random.default_rng(1)
    N, X = 4, np.eye(4)
    eigenvalue = 0.5 - 0.5 / math.pi
    y = np.array([1.0, -1.0, 1.0, -1.0])
    outcomes = set()
    for m in (6, 15, 30, 60, 400, 3000):
        W = rng.standard_normal((N, m))
        features = np.maximum(W, 0)
        least = np.linalg.eigvalsh(features @ features.T)[0]
        top = np.linalg.eigvalsh(W @ W.T)[-1]
        mine = width_conditions.has(name, X, m, least, top, eigenvalue)
        if m <= 400:
            if name == "scaled":
                params = Params(W / math.sqrt(m), np.eye(m), np.zeros(m), 0.1)
                params = params.scaled(34 * N / eigenvalue)
            else:
                gamma = 0.08 * math.sqrt(eigenvalue / N)
                params = Params(W, np.eye(m), np.zeros(m), gamma)
            assert mine is deep.conditions(params, X, y).descent_holds
        outcomes.add(mine)
    assert outcomes == ({True, False} if name == "scaled" else {False})


def test_smallest_width_is_where_the_property_begins():
    row = width_conditions.row({"property": "spectrum", "data": "orthonormal", "N": 8}, 0)
    # (1 - sqrt(N/m))^2 = 1/2 at m = 11.7 N; finite N and 90 % of draws ask for a little more
    assert 9 < row["width_over_N"] < 18
    assert row["width"] == 8 * row["width_over_N"] == 64 * row["width_over_N2"]


def test_grown_products_are_those_of_the_whole_matrix():
    X = width_conditions.inputs("sphere", 6, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    assert X.shape == (6, 3)
    last = list(width_conditions.growing(X, np.array([3, 7, 20]), np.random.default_rng(1)))[-1]
    assert last[0] == 20
    values = np.linalg.eigvalsh(last[1])
    assert values[0] > 0 and np.linalg.matrix_rank(last[2]) == 3


def test_images_are_grey_unit_rows_of_both_classes():
    train, test = _binary_images.draw("mnist", 31, 0, source="embedded")
    assert train.X.shape == (31, 784)
    np.testing.assert_allclose(np.linalg.norm(train.X, axis=1), 1.0)
    assert np.bincount(train.classes).tolist() == [16, 15]
    assert set(train.y) == {-1.0, 1.0} and set(test.classes) == {0, 1}
    other, _ = _binary_images.draw("mnist", 31, 0, source="embedded", labels="zero-one")
    assert np.array_equal(other.X, train.X) and np.array_equal(other.y, (train.y + 1) / 2)
    assert len(np.unique(train.X, axis=0)) == 31


def test_too_many_images_are_refused():
    with pytest.raises(ValueError, match=r"class 0 has \d+ images, 5000 were asked for"):
        _binary_images.draw("mnist", 10_000, 0, source="embedded")


def test_errors_count_the_wrong_side():
    sample = _binary_images.Labelled(np.zeros((3, 1)), np.array([-1.0, 1, 1]), np.array([0, 1, 1]))
    assert _binary_images.error(np.array([-0.1, 0.1, -0.1]), sample, "signs") == pytest.approx(
        1 / 3
    )
    assert _binary_images.error(np.array([0.4, 0.6, 0.4]), sample, "zero-one") == pytest.approx(
        1 / 3
    )


def test_resizing_keeps_constants_and_ramps():
    for size in (28, 32, 56):
        matrix = _binary_images.interpolation(size)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
        ramp = matrix @ np.arange(size)
        inside = slice(1, -1)
        expected = (np.arange(28) + 0.5) * size / 28 - 0.5
        np.testing.assert_allclose(ramp[inside], expected[inside])
    black = _binary_images.prepared(np.zeros((1, 32, 32, 3)))
    assert not black.any()
    colour = np.zeros((1, 32, 32, 3))
    colour[..., 1] = 0.5
    np.testing.assert_allclose(_binary_images.prepared(colour), 1 / 28)


def test_svhn_goes_through_the_reader_of_its_own_format(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for split, count in (("train", 24), ("test", 12)):
        x = rng.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        y = np.array([10, 1, 2] * (count // 3), dtype=np.uint8)
        savemat(tmp_path / f"{split}_32x32.mat", {"X": x.transpose(1, 2, 3, 0), "y": y[:, None]})
    monkeypatch.setenv("IMPLICITNN_DATA", str(tmp_path))
    _binary_images.pool.cache_clear()
    settings = {
        "source": "full", "N": 10, "epochs": 3, "gamma": 0.1, "labels": "signs",
        "dataset": "svhn", "m": 20, "model": "infinite",
    }  # fmt: skip
    try:
        row = depth_training.row(settings, 0)
    finally:
        _binary_images.pool.cache_clear()
    assert row["status"] == "COMPLETED" and row["loss_first"] == pytest.approx(5.0)


SMALL = {
    "source": "embedded", "N": 30, "epochs": 20, "gamma": 0.1, "labels": "signs",
    "dataset": "mnist", "m": 60,
}  # fmt: skip


@pytest.mark.parametrize("model", depth_training.MODELS)
def test_training_rows(model):
    row = depth_training.row(SMALL | {"model": model}, 0)
    assert row["status"] == "COMPLETED"
    assert row["loss_first"] == pytest.approx(15.0)  # b = 0: half the squared norm of the labels
    assert row["loss_last"] < row["loss_first"]
    lengths = {len(row[key]) for key in row if key.startswith("curve_")}
    assert lengths == {21}
    for key, value in row.items():
        if key != "status":
            real_array(np.atleast_1d(np.asarray(value, dtype=float)), key, 1)
    assert (row["needed_beta"] > 1) is (model == "infinite")


def test_needed_scale_is_the_smallest_admissible_one():
    train, _ = _binary_images.draw("mnist", 30, 0, source="embedded")
    start = deep.identity(784, 60, 0.1, np.random.default_rng([0, 60]))
    found = depth_training.needed(start, train)
    scaled = start.scaled(found["needed_beta"] * 1.0001)
    assert deep.conditions(scaled, train.X, train.y).descent_holds
    smaller = start.scaled(found["needed_beta"] * 0.999)
    assert not deep.conditions(smaller, train.X, train.y).descent_holds
    assert found["needed_gamma"] == pytest.approx(0.1 / found["needed_beta"])


def test_edge_rows_name_the_epoch():
    cell = {
        "dataset": "mnist", "source": "embedded", "N": 40, "m": 60, "epochs": 20,
        "labels": "signs", "strategy": "fixed",
    }  # fmt: skip
    calm = gamma_edge.row(cell | {"gamma": 0.1}, 0)
    assert calm["status"] == "COMPLETED" and calm["left_epoch"] == -1
    wild = gamma_edge.row(cell | {"gamma": 0.95}, 0)
    assert wild["status"] == "NOT_WELL_POSED"
    assert wild["left_epoch"] > 0 and wild["left_rate"] >= 1
    renewed = gamma_edge.row(cell | {"gamma": 0.5, "strategy": "each epoch"}, 0)
    assert renewed["largest_rate"] == pytest.approx(0.5)


@pytest.mark.parametrize("kind", well_posedness.KINDS)
def test_contraction_does_not_depend_on_rounding(kind):
    """Another machine computes other last digits of A; the measure must not follow them."""
    rng = np.random.default_rng(3)
    A = well_posedness.weights(kind, 40, rng)
    v = well_posedness.most_stretched(A)
    assert np.linalg.norm(v @ A) == pytest.approx(np.linalg.norm(A, 2), rel=1e-9)
    noise = 1e-15 * np.linalg.norm(A, 2) * rng.standard_normal(A.shape)
    assert np.linalg.norm(well_posedness.most_stretched(A + noise) - v) < 1e-8
