"""Infinite depth: hostile input, the edge of well-posedness, and what other tests leave open."""

import numpy as np
import pytest

from implicitnn import infinite_depth as deep
from implicitnn._infinite_depth import descent
from implicitnn._infinite_depth.norms import contracts, splitting
from implicitnn.infinite_depth import Params, Status

ONE = np.ones((1, 1))


def draw(seed, N=6, d=4, m=9, rate=0.6):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, m))
    params = Params(
        rng.standard_normal((d, m)), A, rng.standard_normal(m), rate / np.linalg.norm(A, 2)
    )
    return params, rng.standard_normal((N, d)), rng.standard_normal(N)


@pytest.mark.parametrize("scale", [1e-300, 1e-170, 1e-158, 1e154])
def test_the_fixed_point_is_homogeneous_far_out(scale):
    params, X, _ = draw(0)
    exact = deep.forward(params, X)
    found = deep.forward(params, scale * X)
    assert found.status is Status.CONVERGED and found.iterations == exact.iterations
    np.testing.assert_allclose(found.Z, scale * exact.Z, rtol=1e-11, atol=0)


@pytest.mark.parametrize("scale", [1e-300, 1e-20, 1e-12, 1e200])
def test_operator_norm_at_any_scale(scale):
    A = np.random.default_rng(3).standard_normal((200, 200))
    assert deep.operator_norm(scale * A) == pytest.approx(
        scale * np.linalg.norm(A, 2), rel=1e-12, abs=0
    )


@pytest.mark.parametrize("A", [np.eye(200), np.diag(np.r_[np.ones(100), np.zeros(100)])])
def test_operator_norm_does_not_depend_on_the_calls_before(A):
    assert len({deep.operator_norm(A) for _ in range(10)}) == 1


def test_splitting_next_to_the_edge():
    assert splitting(np.eye(3), 1 - 2.0**-53, 1.0).shift == 0.0


def test_flow_without_a_recorded_time():
    params = Params(ONE, ONE, np.array([0.1]), 0.6)
    run = deep.flow(params, ONE, np.array([100.0]), np.array([5.0]), edge=0.95)
    assert run.status is Status.NOT_WELL_POSED and run.trace.loss.size == 0
    assert run.params.rate == pytest.approx(0.95, abs=1e-6)


def test_flow_that_gives_up_returns_the_parameters_it_reached():
    params = Params(ONE, ONE, np.array([0.1]), 0.6)
    run = deep.flow(params, ONE, np.array([100.0]), np.array([5.0]), max_evaluations=60)
    again = deep.flow(params, ONE, np.array([100.0]), np.array([run.time]))
    np.testing.assert_allclose(run.params.A, again.params.A, rtol=1e-6)


def test_flow_names_a_record_that_fails():
    params = Params(ONE, 0.1 * ONE, np.array([0.1]), 0.6)
    run = deep.flow(params, ONE, np.array([2.0]), np.array([0, 0.02, 8.0]), max_iterations=20)
    assert run.status is Status.MAX_ITERATIONS


def test_flow_starts_along_the_gradient():
    params, X, y = draw(4)
    g, time = deep.gradients(params, X, y), 1e-6
    run = deep.flow(params, X, y, np.array([time]))
    for name in ("W", "A", "b"):
        step = (getattr(params, name) - getattr(run.params, name)) / time
        scale = np.abs(getattr(g, name)).max()
        np.testing.assert_allclose(step, getattr(g, name), atol=3e-3 * scale)


def test_conditions_refuse_features_that_were_not_found():
    params = Params(np.eye(2), np.eye(2), np.zeros(2), 0.9999)
    with pytest.raises(RuntimeError, match="could not be found"):
        deep.conditions(params, np.eye(2), np.ones(2), radii=(1, 1e-6, 1))


def test_conditions_with_huge_data_do_not_overflow():
    params = Params(40 * np.eye(2), np.zeros((2, 2)), np.zeros(2), 0.05)
    assert not deep.conditions(params, 1e150 * np.eye(2), np.ones(2)).descent_holds


def test_every_right_side_of_descent():
    params = Params(40 * np.eye(2), np.full((2, 2), 0.1), np.ones(2), 0.05)
    c = deep.conditions(params, np.eye(2), np.array([1.0, -1.0]), radii=(0.5, 2.0, 0.25))
    r = 8 * c.r0
    rights = [
        c.g0,
        c.descent[1].right,
        r * c.B_W / 0.5,
        r * c.B_A / 2,
        r * c.B_Z / 0.25,
        2 * r * c.C_Z,
        8 * c.l3 * c.C_Z,
    ]
    assert [i.right for i in c.descent] == pytest.approx(rights, rel=1e-12)


def test_largest_must_exceed_one():
    with pytest.raises(ValueError, match="largest must"):
        deep.smallest_beta(
            Params(np.eye(2), np.eye(2), np.zeros(2), 0.1), np.eye(2), np.ones(2), largest=0.5
        )


@pytest.mark.parametrize("k", [-1, np.nan, [0, -2]])
def test_no_bound_before_the_start(k):
    params = Params(40 * np.eye(2), np.zeros((2, 2)), np.zeros(2), 0.05)
    c = deep.conditions(params, np.eye(2), np.array([1.0, -1.0]))
    for bound in (c.bound, c.flow_bound):
        with pytest.raises(ValueError, match="must not be negative"):
            bound(k)


def test_no_record_is_infinite_when_all_units_die():
    run = deep.descend(Params(ONE, ONE, np.ones(1), 0.0), ONE, np.zeros(1), 1e160, 2)
    assert np.isfinite(run.trace.moved_W).all() and np.isfinite(run.trace.moved_b).all()


def test_params_do_not_follow_the_callers_arrays():
    A = 0.5 * np.eye(3)
    params = Params(np.ones((2, 3)), A, np.ones(3), 1.0)
    A *= 100
    assert params.rate == 0.5


def test_shrink_and_project_land_on_the_edge():
    params, X, y = draw(1, rate=1.5)
    shrunk = deep.descend(params, X, y, 1e-3, 0, on_leave="shrink", edge=0.8)
    assert shrunk.params.rate == pytest.approx(0.8, rel=1e-9)
    clipped = deep.descend(params, X, y, 1e-3, 0, on_leave="project", edge=0.8)
    u, s, v = np.linalg.svd(params.A)
    exact = (u * np.minimum(s, 0.8 / params.gamma)) @ v
    np.testing.assert_allclose(clipped.params.A, exact, atol=1e-9 * s[0])


def test_initialisations_have_all_stated_variances():
    assert deep.gaussian(5, 4000, 0.1, 0).b.var() == pytest.approx(1 / 4000, rel=0.14)
    assert deep.nonnegative(100, 400, 0.1, 0).W.var() == pytest.approx(1 / 400, rel=0.042)


@pytest.mark.parametrize("m", [6, 200])
@pytest.mark.parametrize("options", [{}, {"split": False}, {"on_leave": "shrink"}])
def test_gamma_one_is_not_well_posed_at_any_size(m, options):
    start = deep.identity(4, m, 1.0, 0)
    X, y = np.eye(4), np.ones(4)
    assert deep.forward(start, X).status is Status.NOT_WELL_POSED
    assert deep.gradients(start, X, y).status is Status.NOT_WELL_POSED
    run = deep.descend(start, X, y, 0.01, 3, **options)
    shrunk = options.get("on_leave") == "shrink"
    assert run.status is (Status.COMPLETED if shrunk else Status.NOT_WELL_POSED)
    assert run.left[0].epoch == 0


def test_a_rate_nearer_to_one_than_the_norm_is_known_does_not_count_as_below():
    assert contracts(1.0 - 1e-11) and not contracts(1.0 - 1e-13) and not contracts(1.0)
    assert not contracts(np.inf) and not contracts(np.nan)


def test_an_iteration_stuck_far_from_the_solution_does_not_converge():
    params = Params(np.eye(2), np.eye(2), np.zeros(2), 1.0 - 1e-9)
    exact = np.eye(2) / (1.0 - params.gamma)
    start = exact * (1.0 + 1e-6)
    found = deep.forward(params, np.eye(2), start=start, max_iterations=200)
    error = np.linalg.norm(found.Z - exact)
    assert found.status is Status.MAX_ITERATIONS
    assert error <= found.report.error_bound * 1.01


def test_a_step_that_rounds_to_nothing_leaves_a_bound():
    params = Params(np.eye(1), np.eye(1), np.zeros(1), 1.0 - 1e-10)
    exact = 1.0 / (1.0 - params.gamma)
    found = deep.forward(params, ONE, start=np.array([[exact * (1 + 1e-8)]]), max_iterations=50)
    assert abs(found.Z[0, 0] - exact) <= found.report.error_bound


def test_gradients_and_gram_that_overflow_say_so():
    params, X, y = draw(2)
    found = deep.gradients(params, X, 1e200 * y)
    assert found.status is Status.DIVERGED and not found.W.any()
    with pytest.raises(ValueError, match="left the floating-point range"):
        deep.gram(params, 1e154 * X)


def test_flow_with_labels_out_of_range_diverges():
    params, X, y = draw(2)
    run = deep.flow(params, X, 1e200 * y, np.array([0.0, 1.0]))
    assert run.status is Status.DIVERGED and run.trace.loss.size == 0 and run.time == 0.0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"split": "no"}, TypeError, "split must be True or False"),
        ({"split": np.ones(3)}, TypeError, "split must be True or False"),
        ({"observe": 3}, TypeError, "observe must be callable"),
        ({"depth": 2, "each_epoch": 0.5}, ValueError, "depth must be None"),
    ],
)
def test_options_of_descent_are_refused_by_name(options, error, message):
    params, X, y = draw(2)
    with pytest.raises(error, match=message):
        deep.descend(params, X, y, 0.1, 1, **options)


@pytest.mark.parametrize("call", [deep.forward, deep.gram])
def test_what_is_no_params_is_named(call):
    with pytest.raises(TypeError, match="params must be Params, got NoneType"):
        call(None, ONE)


def test_scaling_out_of_range_names_beta():
    params, _, _ = draw(2)
    for beta in (1e308, 1e-320):
        with pytest.raises(ValueError, match="beta"):
            params.scaled(beta)


def test_a_width_that_no_array_holds_is_named():
    with pytest.raises(ValueError, match="m must be at most"):
        deep.identity(3, 2**62, 0.1, 0)


def test_a_flow_needs_a_time_after_zero():
    params, X, y = draw(2)
    with pytest.raises(ValueError, match="must end after 0"):
        deep.flow(params, X, y, np.array([0.0]))


@pytest.mark.parametrize("value", [[1.0], np.empty((0, 2)), [[np.nan]], [["a"]], [[1j]]])
def test_norms_refuse_what_is_no_matrix(value):
    for function in (deep.operator_norm, deep.smallest_singular_value):
        with pytest.raises((TypeError, ValueError), match="must"):
            function(value)


def test_splitting_is_renewed_where_the_bound_on_the_move_is_too_coarse(monkeypatch):
    """The rate of the split map, with the move added, passes one before that of the network."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((4, 3))
    X /= np.linalg.norm(X, axis=1)[:, None]
    start, y = deep.identity(3, 8, 0.95, 0), 20.0 * rng.standard_normal(4)
    renewed = []
    measure = descent._Run._measure
    monkeypatch.setattr(
        descent._Run,
        "_measure",
        lambda run: (renewed.append(run.moved if hasattr(run, "moved") else 0), measure(run))[1],
    )
    split = deep.descend(start, X, y, 1e-4, 40, record_every=1000, max_iterations=3000)
    plain = deep.descend(start, X, y, 1e-4, 40, record_every=1000, split=False)
    assert split.status is plain.status
    np.testing.assert_allclose(split.losses, plain.losses, rtol=1e-7)
    assert max(renewed) > 0
