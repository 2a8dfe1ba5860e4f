"""Readouts against their optimality conditions, scikit-learn, and gradient descent; training."""

import numpy as np
import pytest
import torch
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression, Ridge

from implicitnn import networks, readout
from implicitnn._networks import thin
from implicitnn.activations import relu, tanh
from implicitnn.networks import ExplicitNet, ImplicitNet
from implicitnn.readout import Readout, Recipe
from implicitnn.specs import DEQ, ENN


def problem(n=150, m=12, k=3, seed=0):
    """Features with a spread of scales, and classes that overlap."""
    rng = np.random.default_rng(seed)
    y = np.r_[np.arange(k), rng.integers(0, k, n - k)]
    means = rng.standard_normal((k, m))
    F = (means[y] + 1.5 * rng.standard_normal((n, m))) * 10.0 ** -np.linspace(0, 2, m)
    return F, y


def objective(W, F, y, penalty):
    logits = F @ W
    fit = special.logsumexp(logits, axis=1) - logits[np.arange(len(y)), y]
    return fit.mean() + 0.5 * penalty * (W**2).sum()


@pytest.mark.parametrize("penalty", [1e-1, 1e-3, 1e-6])
def test_softmax_reaches_its_certificate_and_the_certificate_is_true(penalty):
    F, y = problem()
    found = readout.softmax(F, y, penalty)
    assert found.gap <= 1e-9
    assert found.objective == pytest.approx(objective(found.weights, F, y, penalty), rel=1e-12)
    # The gradient by central differences of order two: error h^2 f''' / 6 + eps / h below 1e-9.
    h, gradient = 1e-5, np.empty_like(found.weights)
    for place in np.ndindex(gradient.shape):
        step = np.zeros_like(gradient)
        step[place] = h
        values = [objective(found.weights + s * step, F, y, penalty) for s in (1, -1)]
        gradient[place] = (values[0] - values[1]) / (2 * h)
    size = np.linalg.norm(gradient)
    assert size <= np.sqrt(2 * penalty * 1e-9) + 1e-9 * gradient.size
    # A coarse solution's certificate bounds its distance from the fine minimum.
    coarse = readout.softmax(F, y, penalty, gap=1e-2)
    assert coarse.objective - found.objective + 1e-9 >= 0 and coarse.gap <= 1e-2
    assert coarse.objective - found.objective <= coarse.gap


@pytest.mark.parametrize("penalty", [1e-1, 1e-4])
def test_softmax_agrees_with_scikit_learn(penalty):
    F, y = problem(seed=1)
    ours = readout.softmax(F, y, penalty)
    theirs = LogisticRegression(
        C=1 / (penalty * len(F)), fit_intercept=False, tol=1e-10, max_iter=20_000
    ).fit(F, y)
    value = objective(theirs.coef_.T, F, y, penalty)
    assert ours.objective <= value + 1e-9
    assert value - ours.objective < 1e-6
    np.testing.assert_allclose(ours.logits(F), theirs.decision_function(F), atol=2e-3)


def test_warm_start_ends_at_the_same_minimum():
    F, y = problem()
    cold = readout.softmax(F, y, 1e-4)
    warm = readout.softmax(F, y, 1e-4, start=readout.softmax(F, y, 1e-3))
    assert abs(cold.objective - warm.objective) <= 2e-9
    # Strong convexity: |W - W'|^2 <= 2/penalty times the sum of the gaps, doubled.
    bound = np.sqrt(2 * 2 * (cold.gap + warm.gap) / 1e-4)
    assert np.linalg.norm(cold.weights - warm.weights) <= bound


def test_separable_data_need_the_penalty():
    """The minimum exists for every penalty, and its norm grows without bound as it shrinks."""
    F, y = np.eye(3).repeat(5, axis=0), np.arange(3).repeat(5)
    norms = [np.linalg.norm(readout.softmax(F, y, 10.0**-k).weights) for k in (2, 4, 6)]
    assert norms[1] > 2 * norms[0] and norms[2] > 1.5 * norms[1]
    with pytest.raises(ValueError, match="penalty must be positive"):
        readout.softmax(F, y, 0.0)


@pytest.mark.parametrize("shape", [(150, 12), (20, 50)], ids=["primal", "dual"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ridge_is_the_closed_form_in_both_sizes(shape, dtype):
    F, y = problem(*shape)
    F = F.astype(dtype)
    found = readout.ridge(F, y, 1e-3)
    targets = np.eye(3)[y] - 1 / 3
    theirs = Ridge(alpha=len(F) * 1e-3, fit_intercept=False, solver="svd").fit(
        F.astype(float), targets
    )
    np.testing.assert_allclose(found.weights, theirs.coef_.T, rtol=1e-7, atol=1e-9)
    exact = F.astype(float)
    value = ((exact @ found.weights - targets) ** 2).sum() / len(F)
    value += 1e-3 * (found.weights**2).sum()
    assert found.objective == pytest.approx(value, rel=1e-12) and 0 <= found.gap < 1e-16


def test_sgd_follows_the_recipe_of_the_linear_layer():
    """One epoch by hand, and a long run that approaches the minimum of what it descends."""
    F, y = problem()
    rng = np.random.default_rng(5)
    bound = 12**-0.5
    W, b = rng.uniform(-bound, bound, (12, 3)), rng.uniform(-bound, bound, 3)
    order = rng.permutation(150)
    for start in (0, 64):
        rows = order[start : start + 64]
        p = special.softmax(F[rows] @ W + b, axis=1) - np.eye(3)[y[rows]]
        W, b = W - 0.5 * F[rows].T @ p / 64, b - 0.5 * p.mean(axis=0)
    found = readout.sgd(F, y, 5, Recipe(lr=0.5, epochs=1, batch=64))
    np.testing.assert_allclose(found.weights, W, rtol=1e-12)
    np.testing.assert_allclose(found.bias, b, rtol=1e-12)
    F = F[:, :6] / F[:, :6].std(axis=0)
    wide = np.c_[F, np.ones(150)]
    best = optimize.minimize(lambda v: objective(v.reshape(7, 3), wide, y, 0.0), np.zeros(21))
    run = readout.sgd(F, y, 5, Recipe(lr=0.5, epochs=400, batch=150))
    assert best.fun <= run.loss(F, y) < best.fun + 0.02
    assert run.history[0] > run.history[-1] and len(run.history) == 400 and np.isnan(run.gap)


def test_precision_is_that_of_the_features():
    F, y = problem()
    single, double = (readout.sgd(F.astype(t), y, 0, Recipe(epochs=3)) for t in ("f4", "f8"))
    assert single.weights.dtype == np.float32 and double.weights.dtype == np.float64
    np.testing.assert_allclose(single.weights, double.weights, atol=1e-5)


@pytest.mark.parametrize("method", readout.METHODS)
@pytest.mark.parametrize("shape", [(200, 12), (60, 90)])
def test_selection_takes_the_best_on_what_was_held_out(method, shape):
    F, y = problem(*shape)
    chosen = readout.select(F, y, 3, method, penalties=(1.0, 1e-2, 1e-5))
    best = int(np.argmin(chosen.losses))
    assert chosen.penalties == (1.0, 1e-2, 1e-5)
    assert chosen.readout.penalty == chosen.penalties[best]
    assert chosen.at_edge == (best != 1)
    assert max(*chosen.gaps, chosen.readout.gap) <= 1e-9
    fit = readout.softmax if method == "softmax" else readout.ridge
    again = fit(F, y, chosen.readout.penalty)
    np.testing.assert_allclose(again.logits(F), chosen.readout.logits(F), atol=1e-2)
    other = readout.select(F, y, 3, method, penalties=(1e-5, 1.0, 1e-2))
    assert other.losses == chosen.losses


def test_certificate_of_features_in_single_precision_is_in_double():
    """The gradient at the solution, taken in float64, obeys the gap that is reported."""
    F, y = problem(n=600)
    F = F.astype(np.float32)
    found = readout.softmax(F, y, 1e-6, gap=1e-10)
    exact = F.astype(float)
    p = special.softmax(exact @ found.weights, axis=1) - np.eye(3)[y]
    gradient = exact.T @ p / len(F) + 1e-6 * found.weights
    bound = (gradient**2).sum() / 2e-6
    assert found.gap <= 1e-10 and bound == pytest.approx(found.gap, rel=1e-6, abs=1e-16)
    double = readout.softmax(exact, y, 1e-6, gap=1e-12)
    assert 0 <= found.objective - double.objective + 1e-12 <= 1e-10 + 1e-12


@pytest.mark.parametrize("penalty", [1e-8, 1e-10])
@pytest.mark.parametrize("shape", [(80, 30), (30, 80)])
def test_separable_features_in_single_precision_reach_the_gap(shape, penalty):
    """Probabilities rounded to one there have no curvature left: p(1 - p) must be in float64."""
    rng = np.random.default_rng(3)
    y = np.arange(shape[0]) % 2
    F = rng.standard_normal(shape) + 3.0 * (2 * y - 1)[:, None]
    single, double = (readout.softmax(F.astype(t), y, penalty) for t in ("f4", "f8"))
    assert max(single.gap, double.gap) <= 1e-9
    assert single.work < 3 * double.work
    assert single.objective == pytest.approx(double.objective, abs=1e-8)
    exact = F.astype("f4").astype(float)
    p = special.softmax(exact @ single.weights, axis=1) - np.eye(2)[y]
    gradient = exact.T @ p / len(F) + penalty * single.weights
    assert (gradient**2).sum() / (2 * penalty) == pytest.approx(single.gap, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("scale", [1e10, 3e10])
def test_a_fit_beyond_rounding_ends_soon_and_keeps_its_best(scale):
    F, y = problem(k=3)
    found = readout.softmax((F * scale).astype(np.float32), y, 1e-3)
    assert found.work < 400 and found.gap < 1e-6


@pytest.mark.parametrize("method", readout.METHODS)
def test_a_walk_that_ends_early_chooses_as_the_whole_grid_does(method):
    # More features than the classes need: the held-out loss has its least inside the grid.
    F, y = problem(n=200, m=90)
    split = readout.Split(F, y, 3)
    grid = (10.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
    whole, early = (split.select(method, penalties=grid, patience=k) for k in (None, 1))
    tried = len(early.penalties)
    assert tried < len(grid) == len(whole.penalties) and not early.at_edge
    assert early.losses == whole.losses[:tried]
    assert early.losses[-1] >= early.losses[-2] == min(early.losses)
    assert early.readout.penalty == early.penalties[-2]
    coarse = split.select(method, penalties=grid, path_gap=1e-4, patience=1)
    assert max(coarse.gaps) <= 1e-4 and coarse.readout.gap <= 1e-9
    assert coarse.readout.penalty == early.readout.penalty
    np.testing.assert_array_equal(split.held, readout.Split(F, y, 3).held)


@pytest.mark.parametrize("shape", [(7, 3), (130, 12), (259, 600)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_thin_products_are_matrix_products_in_any_shape(shape, dtype):
    """Rows in groups of four with a rest, columns in blocks with a rest; rows by index."""
    rng = np.random.default_rng(0)
    F, W = rng.standard_normal(shape).astype(dtype), rng.standard_normal((5, shape[1]))
    rows = rng.permutation(shape[0])[: shape[0] - 1]
    out, total = np.empty((5, len(rows))), np.zeros((5, shape[1]))
    thin.scores(F, rows, W, out)
    np.testing.assert_allclose(out, W @ F[rows].T, rtol=1e-12, atol=1e-12)
    thin.add(F, rows, out, total)
    np.testing.assert_allclose(total, out @ F[rows], rtol=1e-11, atol=1e-10)


def test_logits_in_blocks_are_those_of_one_product():
    rng = np.random.default_rng(0)
    F = rng.standard_normal((9000, 4)).astype(np.float32)
    W, b = rng.standard_normal((4, 3)), rng.standard_normal(3)
    found = Readout(W, b, 0.0, 0.0, 0.0, 0).logits(F)
    np.testing.assert_allclose(found, F @ W + b, rtol=1e-12, atol=1e-12)


def test_held_out_part_is_taken_from_each_class_and_is_no_part_of_the_fit():
    from implicitnn._networks.classifier import held_out

    y = np.r_[np.zeros(40, int), np.ones(20, int)]
    held = held_out(y, 2, 0.1, np.random.default_rng(0))
    assert held[:40].sum() == 4 and held[40:].sum() == 2
    # A feature that marks the held-out samples of class 1: seen in the fit it would be used.
    F = np.c_[np.random.default_rng(1).standard_normal((60, 2)), held & (y == 1)].astype(float)
    chosen = readout.select(F, y, 0, "ridge", penalties=(1e-3, 1e-6), holdout=0.1)
    assert min(chosen.losses) > 0.1


def test_same_seed_same_result():
    F, y = problem()
    runs = [readout.sgd(F, y, 7, Recipe(epochs=2)).weights for _ in range(2)]
    assert (runs[0] == runs[1]).all()
    assert (readout.sgd(F, y, 8, Recipe(epochs=2)).weights != runs[0]).any()
    picks = [readout.select(F, y, 7, penalties=(1e-1, 1e-3)) for _ in range(2)]
    assert picks[0].losses == picks[1].losses
    results = []
    for _ in range(2):
        net = ImplicitNet(DEQ(tanh, 0.2), 12, 20, 3, rng=1)
        history = networks.train(net, F, y, 2, Recipe(epochs=2, batch=50))
        results.append((history, net.A.detach().numpy().copy()))
    assert results[0][0] == results[1][0] and (results[0][1] == results[1][1]).all()


@pytest.mark.parametrize("spec", [DEQ(relu, 0.2), ENN((relu, tanh))], ids=repr)
def test_training_moves_all_weights_and_lowers_the_loss(spec):
    F, y = problem()
    make = ImplicitNet if isinstance(spec, DEQ) else ExplicitNet
    net = make(spec, 12, 64, 3, rng=0)
    before = {name: p.detach().clone() for name, p in net.named_parameters()}
    seen = []
    history = networks.train(
        net, F, y, 0, Recipe(lr=0.5, epochs=8, batch=50), after_epoch=seen.append
    )
    assert seen == list(range(1, 9)) and history.finite and history.not_converged == 0
    assert history.losses[-1] < 0.8 * history.losses[0]
    assert all((p != before[name]).any() for name, p in net.named_parameters())
    assert len(history.iterations) == (8 if isinstance(spec, DEQ) else 0)


def test_one_step_of_training_is_a_gradient_step():
    F, y = problem(n=40)
    net, twin = (ImplicitNet(DEQ(tanh, 0.3), 12, 20, 3, rng=0, dtype=torch.float64) for _ in "ab")
    networks.train(net, F, y, 0, Recipe(lr=0.3, epochs=1, batch=40))
    loss = torch.nn.functional.cross_entropy(twin(torch.from_numpy(F)), torch.from_numpy(y))
    loss.backward()
    for moved, start in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(moved, start - 0.3 * start.grad, rtol=1e-8, atol=1e-10)


def test_training_counts_failures_and_stops_at_nonsense():
    F, y = problem()
    net = ImplicitNet(DEQ(relu, 0.2), 12, 20, 3, rng=0, on_failure="count", max_steps=2)
    history = networks.train(net, F, y, 0, Recipe(epochs=1, batch=50))
    assert history.not_converged == 2 * 150
    wild = ImplicitNet(DEQ(relu, 0.2), 12, 20, 3, rng=0, on_failure="count")
    history = networks.train(wild, F, y, 0, Recipe(lr=1e4, epochs=20, batch=50))
    assert not history.finite and len(history.losses) < 20 and history.not_converged > 0


def test_penalty_enters_the_loss():
    F, y = problem()
    norms = []
    for weight in (0.0, 300.0):
        net = ImplicitNet(DEQ(tanh, 0.5), 12, 30, 3, rng=0)
        rng = np.random.default_rng(1)

        def penalty(x, net=net, rng=rng, weight=weight):
            return weight * networks.jacobian_penalty(net, x, net.features(x), rng)

        networks.train(net, F, y, 0, Recipe(lr=0.1, epochs=5, batch=50), penalty=penalty)
        norms.append(float(net.A.detach().norm()))
    assert norms[1] < 0.9 * norms[0]


def test_a_readout_is_judged_on_what_fits_it_only():
    """A column of labels would be compared with every sample; a label of -1 with the last class."""
    F, y = problem()
    found = readout.ridge(F, y, 0.1)
    for call, words in (
        (lambda: found.accuracy(F, y[:, None]), "y must be 150 integers"),
        (lambda: found.accuracy(F, y[:1]), "y must be 150 integers"),
        (lambda: found.accuracy(F, y.astype(float)), "y must be 150 integers"),
        (lambda: found.loss(F, y[:, None]), "y must be 150 integers"),
        (lambda: found.loss(F, y - 1), "y must lie in 0..2"),
        (lambda: found.loss(F, y + 1), "y must lie in 0..2"),
        (lambda: found.accuracy(F[0], y[:1]), "F must be numbers"),
        (lambda: found.logits(F[:, :3]), "F must be numbers"),
        (lambda: found.logits(F[:0]), "F must be numbers"),
        (lambda: found.logits(np.full_like(F, np.nan)), "F must be finite"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_features_of_other_layouts_are_taken_and_masks_are_not():
    F, y = problem()
    recipe = Recipe(epochs=2, batch=50)
    fits = (
        lambda F, y: readout.sgd(F, y, 0, recipe),
        lambda F, y: readout.softmax(F, y, 0.1),
        lambda F, y: readout.ridge(F, y, 0.1),
    )
    for fit in fits:
        wanted = fit(F, y).weights
        for same in (F.astype(">f8"), np.asfortranarray(F), F[::-1][::-1], F.tolist()):
            np.testing.assert_array_equal(fit(same, y.astype(">i2")).weights, wanted)
        for args in ((np.ma.masked_greater(F, 1.0), y), (F, np.ma.masked_equal(y, 2))):
            with pytest.raises(TypeError, match="masked"):
                fit(*args)
    with pytest.raises(TypeError, match="start must be a Readout"):
        readout.softmax(F, y, 0.1, start=wanted)
    with pytest.raises(TypeError, match="recipe must be a Recipe"):
        readout.sgd(F, y, 0, {"lr": 1.0})


def test_bad_arguments_are_named():
    F, y = problem()
    W, zeros = np.random.default_rng(0).standard_normal((150, 400)), (np.zeros(3), 0, 0, 0, 0)
    for call, words in (
        (lambda: readout.softmax(F[:, 0], y, 0.1), "F must be floats"),
        (lambda: readout.softmax(F.astype(int), y, 0.1), "F must be floats"),
        (lambda: readout.softmax(np.full_like(F, np.nan), y, 0.1), "F must be finite"),
        (lambda: readout.softmax(F, y[1:], 0.1), "y must be 150 integers"),
        (lambda: readout.softmax(F, y + 1, 0.1), "labels 0..K-1"),
        (lambda: readout.softmax(F, 2 * y, 0.1), "labels 0..K-1"),
        (lambda: readout.softmax(F, y, 0.1, gap=0.0), "gap"),
        (lambda: readout.ridge(F, y, -1.0), "penalty"),
        (lambda: readout.sgd(F, y, 0, Recipe(batch=151)), "batch must not exceed"),
        (lambda: readout.sgd(F * 1e200, y, 0, Recipe(lr=1e300)), "diverged"),
        (lambda: Recipe(lr=0.0), "lr"),
        (lambda: Recipe(epochs=0), "epochs"),
        (lambda: readout.softmax(F.astype(np.float16), y, 0.1), "float32 or float64"),
        (lambda: readout.sgd(F.astype(np.longdouble), y, 0), "float32 or float64"),
        (lambda: readout.ridge(F * 1e200, y, 0.1), "squares overflow"),
        (lambda: readout.ridge(F[:9] * 1e200, y[:9], 0.1), "squares overflow"),
        (lambda: readout.softmax(F * 1e200, y, 0.1), "squares overflow"),
        (lambda: readout.ridge(np.c_[F, F], y, 1e-25), "penalty must exceed the rounding"),
        (lambda: readout.softmax(np.c_[F, F], y, 1e-25), "penalty must exceed the rounding"),
        (lambda: readout.ridge(np.r_[W, W], np.r_[y, y], 1e-25), "penalty must exceed"),
        (lambda: readout.softmax(F, y, 0.1, start=Readout(W[:12, :3] * np.nan, *zeros)), "start"),
        (lambda: readout.sgd(F, y, 0, start=W[:12, :3] * np.nan), "start must be finite"),
        (lambda: readout.select(F, y, 0, "ridge", gap=-1.0), "gap"),
        (lambda: readout.select(F, y, 0, penalties=(1.0, -1.0)), "penalties"),
        (lambda: readout.select(F, y, 0, "svm"), "method"),
        (lambda: readout.select(F, y, 0, penalties=(1.0,)), "at least two"),
        (lambda: readout.select(F, y, 0, penalties=(1.0, 1.0)), "at least two"),
        (lambda: readout.select(F, y, 0, holdout=1.0), "holdout"),
        (lambda: readout.select(F, y, 0, holdout=1e-3), "holdout leaves no sample"),
        (lambda: networks.train(ExplicitNet(ENN((relu,)), 12, 5, 2), F, y, 0), "2 outputs"),
    ):
        with pytest.raises(ValueError, match=words), np.errstate(all="ignore"):
            call()
    assert isinstance(readout.ridge(F, y, 0.1), Readout)
