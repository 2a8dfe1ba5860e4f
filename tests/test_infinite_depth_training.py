"""Gradient descent and gradient flow: updates, well-posedness, hostile settings, records."""

import numpy as np
import pytest

from implicitnn import infinite_depth as deep
from implicitnn._infinite_depth.norms import splitting
from implicitnn._infinite_depth.solve import Workspace
from implicitnn.infinite_depth import Params, Status


def start(seed=0, N=8, d=6, m=20, gamma=0.1):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, d))
    X /= np.linalg.norm(X, axis=1)[:, None]
    return deep.identity(d, m, gamma, seed), X, rng.choice([-1.0, 1.0], N)


def finite_records(run):
    return all(np.isfinite(getattr(run.trace, name)).all() for name in ("loss", "sigma_min",
               "norm_A", "gamma", "moved_W", "moved_A", "moved_b"))  # fmt: skip


def test_descent_takes_the_steps_of_the_gradient():
    params, X, y = start()
    eta = 0.05
    now = params
    for _ in range(5):
        g = deep.gradients(now, X, y)
        now = Params(now.W - eta * g.W, now.A - eta * g.A, now.b - eta * g.b, now.gamma)
    run = deep.descend(params, X, y, eta, 5, tol=1e-13)
    for mine, exact in ((run.params.W, now.W), (run.params.A, now.A), (run.params.b, now.b)):
        np.testing.assert_allclose(mine, exact, rtol=1e-9, atol=1e-11)
    assert run.epochs == 5 and run.status is Status.COMPLETED
    assert params.b.any() == np.False_  # the start is left alone


def test_records_are_those_of_the_parameters():
    params, X, y = start()
    kept = []
    run = deep.descend(params, X, y, 0.05, 25, record_every=10, observe=lambda *a: kept.append(a))
    assert run.trace.epoch.tolist() == [0, 10, 20, 25] == [epoch for epoch, _ in kept]
    assert run.losses.size == run.iterations.size == 26
    assert np.array_equal(run.losses[[0, 10, 20, 25]], run.trace.loss)
    for i, (_, now) in enumerate(kept):
        assert run.trace.loss[i] == pytest.approx(deep.gradients(now, X, y).loss, rel=1e-8)
        assert run.trace.norm_A[i] == pytest.approx(np.linalg.norm(now.A, 2), rel=1e-10)
        assert run.trace.moved_W[i] == pytest.approx(np.linalg.norm(now.W - params.W), abs=1e-12)
        Z = deep.forward(now, X).Z
        assert run.trace.sigma_min[i] == pytest.approx(
            deep.smallest_singular_value(Z), rel=1e-7, abs=1e-12
        )
    assert np.array_equal(run.trace.rate, run.trace.gamma * run.trace.norm_A)


def leaving(on_leave, **options):
    """A start close to the edge with a step that pushes ||A|| over it."""
    params, X, y = start(1, gamma=0.95)
    return deep.descend(params, X, y, 0.01, 120, on_leave=on_leave, **options)


def test_stop_names_epoch_and_value():
    run = leaving("stop")
    assert run.status is Status.NOT_WELL_POSED
    (event,) = run.left
    assert event.epoch == run.epochs > 0
    assert event.rate >= 1
    assert event.rate == pytest.approx(run.params.rate, rel=1e-9)
    assert f"epoch {event.epoch}: gamma ||A|| = {event.rate:.6g}" in run.message
    assert (run.trace.rate < 1).all() and finite_records(run)


@pytest.mark.parametrize("option", ["shrink", "project"])
def test_shrink_and_project_go_on_inside_the_edge(option):
    run = leaving(option, edge=0.9)
    assert run.status is Status.COMPLETED
    assert run.left and all(event.rate >= 1 for event in run.left)
    assert (run.trace.rate < 1).all() and finite_records(run)
    changed = run.trace.gamma[-1] < run.trace.gamma[0]
    assert changed == (option == "shrink")


def test_the_three_options_agree_until_well_posedness_is_left():
    runs = {name: leaving(name) for name in ("stop", "shrink", "project")}
    first = runs["stop"].left[0]
    for run in runs.values():
        assert run.left[0].epoch == first.epoch
        np.testing.assert_array_equal(
            run.trace.loss[: first.epoch], runs["stop"].trace.loss[: first.epoch]
        )


def test_gamma_chosen_at_each_epoch_keeps_the_rate():
    params, X, y = start(1)
    run = deep.descend(params, X, y, 0.1, 30, each_epoch=0.4)
    np.testing.assert_allclose(run.trace.rate, 0.4, rtol=1e-9)
    assert run.status is Status.COMPLETED


def test_a_start_outside_is_not_trained():
    params, X, y = start(gamma=1.0)
    run = deep.descend(params, X, y, 0.1, 10)
    assert run.status is Status.NOT_WELL_POSED and run.epochs == 0
    assert run.trace.loss.size == 0 and run.left[0].rate == pytest.approx(1.0)
    flow = deep.flow(params, X, y, np.array([1.0]))
    assert flow.status is Status.NOT_WELL_POSED and flow.trace.loss.size == 0


def hostile(name):
    params, X, y = start()
    eta = 0.05
    if name == "eta too large":
        eta = 1e3
    elif name == "eta absurd":
        eta = 1e200
    elif name == "m < N":
        params = deep.identity(6, 3, 0.1, 1)
    elif name == "duplicate rows, different labels":
        X[1], y[1] = X[0], -y[0]
    elif name == "zero row":
        X[2] = 0.0
    elif name == "zero data":
        X = 0 * X
    elif name == "huge labels":
        y = 1e200 * y
    return params, X, y, eta


@pytest.mark.parametrize(
    ("name", "statuses"),
    [
        ("eta too large", {Status.NOT_WELL_POSED, Status.DIVERGED}),
        ("eta absurd", {Status.NOT_WELL_POSED, Status.DIVERGED}),
        ("m < N", {Status.COMPLETED}),
        ("duplicate rows, different labels", {Status.COMPLETED}),
        ("zero row", {Status.COMPLETED}),
        ("zero data", {Status.COMPLETED}),
        ("huge labels", {Status.NOT_WELL_POSED, Status.DIVERGED}),
    ],
)
@pytest.mark.parametrize("on_leave", ["stop", "shrink", "project"])
def test_hostile_settings_end_in_a_clear_status(name, statuses, on_leave):
    params, X, y, eta = hostile(name)
    run = deep.descend(params, X, y, eta, 40, on_leave=on_leave)
    allowed = statuses if on_leave == "stop" else statuses | {Status.COMPLETED}
    assert run.status in allowed
    assert finite_records(run)
    assert run.status.text in run.message
    assert all(np.isfinite(a).all() for a in (run.params.W, run.params.A, run.params.b))


@pytest.mark.parametrize("depth", [1, 3])
def test_finite_depth_diverges_in_words_too(depth):
    params, X, y = start()
    run = deep.descend(params, X, y, 1e3, 200, depth=depth)
    assert run.status is Status.DIVERGED
    assert finite_records(run)
    calm = deep.descend(params, X, y, 0.05, 20, depth=depth)
    assert calm.status is Status.COMPLETED and calm.trace.loss[-1] < calm.trace.loss[0]


def test_deep_finite_network_tends_to_the_limit():
    params, X, y = start(gamma=0.5)
    limit = deep.descend(params, X, y, 0.05, 10).trace.loss
    near = deep.descend(params, X, y, 0.05, 10, depth=60).trace.loss
    far = deep.descend(params, X, y, 0.05, 10, depth=2).trace.loss
    np.testing.assert_allclose(near, limit, rtol=1e-8)
    assert abs(far[-1] - limit[-1]) > 1e-3 * limit[-1]


def test_flow_that_leaves_well_posedness_says_when():
    """One unit: Z = w/(1 - gamma a) grows with a towards the edge, and the label is far."""
    params = Params(np.ones((1, 1)), np.ones((1, 1)), np.array([0.1]), 0.6)
    X, y = np.ones((1, 1)), np.array([100.0])
    run = deep.flow(params, X, y, np.linspace(0, 5, 6), edge=0.95)
    assert run.status is Status.NOT_WELL_POSED
    assert 0 < run.time < 5
    assert run.params.rate == pytest.approx(0.95, abs=1e-6) and finite_records(run)


def test_flow_gives_up_in_words():
    params, X, y = start(1, gamma=0.97)
    run = deep.flow(params, X, y, np.array([5.0]), max_evaluations=20)
    assert run.status is Status.INTEGRATOR_FAILED
    assert run.evaluations == 20 and run.time < 5


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_leave": "go on"}, "on_leave must be one of"),
        ({"edge": 1.0}, "edge must lie"),
        ({"each_epoch": 1.5}, "each_epoch must lie"),
        ({"depth": 0}, "depth must be at least 1"),
        ({"record_every": 0}, "record_every must be at least 1"),
        ({"tol": 0.0}, "tol must be positive"),
    ],
)
def test_bad_options_are_refused(options, error):
    params, X, y = start()
    with pytest.raises(ValueError, match=error):
        deep.descend(params, X, y, 0.1, 2, **options)
    with pytest.raises(ValueError, match="eta must be positive"):
        deep.descend(params, X, y, 0.0, 2)


def test_times_of_a_flow_must_increase():
    params, X, y = start()
    for times in ([1.0, 0.5], [-1.0, 1.0]):
        with pytest.raises(ValueError, match="times must increase"):
            deep.flow(params, X, y, np.array(times))


@pytest.mark.parametrize("multiple", [1.0, 4.0, -4.0])
def test_a_multiple_of_the_identity_is_split_off(multiple):
    """Same trajectory, fewer iterations where A is near a multiple of the identity."""
    params, X, y = start(2, N=12, m=150, gamma=0.2)
    near = Params(params.W, multiple * params.A, params.b, params.gamma)
    split = deep.descend(near, X, y, 0.01, 30, tol=1e-12)
    plain = deep.descend(near, X, y, 0.01, 30, tol=1e-12, split=False)
    assert split.status is plain.status is Status.COMPLETED
    np.testing.assert_allclose(split.losses, plain.losses, rtol=1e-9)
    np.testing.assert_allclose(split.params.A, plain.params.A, rtol=0, atol=1e-9)
    assert split.iterations[1:].sum() < 0.7 * plain.iterations[1:].sum()


def test_a_start_far_from_the_identity_is_not_split():
    params, X, y = start(3, N=12, m=150, gamma=0.2)
    rng = np.random.default_rng(4)
    random = Params(params.W, rng.standard_normal((150, 150)) / 12.3, params.b, params.gamma)
    runs = [deep.descend(random, X, y, 0.01, 10, split=flag) for flag in (True, False)]
    assert np.array_equal(runs[0].iterations, runs[1].iterations)
    assert np.array_equal(runs[0].losses, runs[1].losses)


def test_the_split_rate_bounds_the_error():
    """The error that the stopping rule promises holds for the split map, too."""
    params, X, _ = start(5, N=10, m=40, gamma=0.3)
    rng = np.random.default_rng(6)
    A = 2 * np.eye(40) + 0.02 * rng.standard_normal((40, 40))
    norm = deep.operator_norm(A)
    found = splitting(A, norm, 0.3)
    assert found.shift != 0 and found.rate(0.3) < 0.5 * 0.3 * norm
    exact = deep.forward(Params(params.W, A, params.b, 0.3), X, tol=1e-14).Z
    for tol in (1e-2, 1e-4, 1e-6):
        work = Workspace(10, 40)
        work.load(X, params.W, A, 0.3, found.shift)
        report = work.forward(found.rate(0.3), tol, 100)
        assert report.status is Status.CONVERGED
        assert np.linalg.norm(work.Z - exact) <= report.error_bound + 1e-13 * np.linalg.norm(exact)
