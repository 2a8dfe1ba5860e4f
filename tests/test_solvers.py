"""Solvers on maps whose fixed points are known, and on maps that have none."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from implicitnn import solvers
from implicitnn.solvers import Anderson, Broyden, Picard, Status, solve

ALL = [Picard(), Picard(damping=0.7), Anderson(), Anderson(memory=2, damping=0.8), Broyden()]
NAMES = [repr(solver) for solver in ALL]


def affine(radius: float, n: int = 4, m: int = 12, seed: int = 0):
    """y -> M y + b with a symmetric M of given spectral radius, and its fixed point."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((m, m)))[0]
    M = Q @ np.diag(radius * np.linspace(-1, 1, m)) @ Q.T
    b = rng.standard_normal((n, m))
    return (lambda y: y @ M.T + b), np.linalg.solve(np.eye(m) - M, b.T).T


@pytest.mark.parametrize("solver", ALL, ids=NAMES)
def test_fixed_point_is_found_within_the_bound(solver):
    f, exact = affine(0.8)
    found = solve(f, np.zeros_like(exact), solver, rtol=1e-10)
    assert found.status is Status.CONVERGED and found.not_converged == 0
    # |y - y*| <= |f(y) - y| / (1 - q), and the value is f(y): one more factor q below 1.
    gap = np.sqrt(((found.value - exact) ** 2).mean(axis=1))
    assert (gap <= found.residual / (1 - 0.8) + 1e-14).all()
    assert (found.residual <= 1e-12 + 1e-10 * np.sqrt((found.value**2).mean(axis=1))).all()


@pytest.mark.parametrize("solver", ALL, ids=NAMES)
def test_torch_and_numpy_agree(solver):
    f, exact = affine(0.6)
    start = np.zeros_like(exact)
    ours = solve(f, start, solver, rtol=1e-11)
    M, b = f(np.eye(12)[:4]) - f(np.zeros((4, 12))), f(np.zeros((4, 12)))
    full = np.vstack([f(np.eye(12)[k : k + 4]) - b for k in (0, 4, 8)])
    assert np.allclose(M, full[:4])
    T, c = torch.from_numpy(full), torch.from_numpy(b)
    theirs = solve(lambda y: y @ T + c, torch.from_numpy(start), solver, rtol=1e-11)
    assert isinstance(theirs.value, torch.Tensor)
    np.testing.assert_allclose(theirs.value.numpy(), ours.value, rtol=1e-9, atol=1e-10)
    assert theirs.iterations == ours.iterations


@pytest.mark.parametrize("solver", ALL, ids=NAMES)
def test_samples_do_not_influence_each_other(solver):
    """Not even those that fail: a batch holds what its samples give one by one."""
    gains = np.array([[0.5], [3.0], [-0.6], [0.1]])
    bias = np.ones((4, 3))
    bias[3] = np.nan
    batch = solve(lambda y: gains * np.sin(y) + bias, np.zeros((4, 3)), solver, max_steps=60)
    for k in range(4):
        alone = solve(
            lambda y, k=k: gains[k] * np.sin(y) + bias[k], np.zeros((1, 3)), solver, max_steps=60
        )
        assert alone.outcomes[0] is batch.outcomes[k]
        if alone.status is Status.CONVERGED:
            np.testing.assert_allclose(batch.value[k], alone.value[0], rtol=1e-5)
    assert batch.outcomes[3] is Status.NOT_FINITE


@pytest.mark.parametrize("solver", [Picard(), Picard(0.9)], ids=repr)
def test_outcomes_are_told_apart(solver):
    bias = np.ones((4, 2))
    bias[3, 1] = np.inf
    gains = np.array([[0.5], [0.999], [1.5], [0.5]])
    found = solve(lambda y: gains * y + bias, np.zeros((4, 2)), solver, max_steps=80)
    wanted = [Status.CONVERGED, Status.MAX_STEPS, Status.DIVERGED, Status.NOT_FINITE]
    assert found.outcomes == wanted
    assert found.status is Status.NOT_FINITE and found.not_converged == 3
    assert found.counts == dict.fromkeys(wanted, 1)
    words = found.explain()
    assert all(status.explanation in words for status in wanted)
    assert found.converged.tolist() == [True, False, False, False]


def test_a_far_fixed_point_is_not_taken_for_divergence():
    """The iterate grows by more than a factor of 1,000, but its steps shrink."""
    found = solve(lambda y: 0.9995 * y + 1.0, np.zeros((1, 1)), rtol=1e-9, max_steps=60_000)
    assert found.status is Status.CONVERGED
    assert found.value[0, 0] == pytest.approx(2000.0, rel=1e-5)


def test_overflow_is_divergence_and_nan_is_not():
    squares = solve(lambda y: y * y + 2.0, np.full((1, 1), 3.0))
    assert squares.status is Status.DIVERGED
    assert solve(lambda y: y * np.nan, np.ones((1, 1))).status is Status.NOT_FINITE
    start = np.array([[1.0, np.nan]])
    assert solve(lambda y: 0.5 * y, start).status is Status.NOT_FINITE
    oscillating = solve(lambda y: -y, np.ones((1, 1)), max_steps=50)
    assert oscillating.status is Status.MAX_STEPS and oscillating.residual[0] == 2.0
    assert solve(lambda y: -y, np.ones((1, 1)), Picard(0.5)).status is Status.CONVERGED


def test_steps_count_until_convergence_of_each_sample():
    gains = np.array([[0.1], [0.8]])
    found = solve(lambda y: gains * y + 1.0, np.zeros((2, 1)), rtol=1e-8)
    # The step k is gain^(k-1), the value at most 1/(1 - gain) and within 1e-7 of it.
    wanted = [1 + np.ceil(np.log(1e-8 / (1 - g)) / np.log(g)) for g in gains[:, 0]]
    assert found.steps.tolist() == wanted
    assert found.iterations == max(wanted) == len(found.history)


def test_accelerators_save_steps_on_a_slow_symmetric_map_only():
    f, exact = affine(0.98, m=30)
    counts = {
        name: solve(f, np.zeros_like(exact), s, rtol=1e-8, max_steps=5000).iterations
        for name, s in (("picard", Picard()), ("anderson", Anderson(10)), ("broyden", Broyden(30)))
    }
    assert counts["anderson"] < counts["picard"] / 5 and counts["broyden"] < counts["picard"] / 5


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("solver", [Anderson(memory=8), Broyden(memory=3)], ids=repr)
def test_a_history_without_rank_does_no_harm(solver, as_tensor):
    """Changes along one line, in float32, of every size, beside samples that fail."""
    gains = np.array([[0.99], [0.5], [0.0], [4.0], [-0.9]], np.float32)
    bias = np.full((5, 6), 1.0, np.float32)
    bias[2] = 1e-30
    start = np.zeros((5, 6), np.float32)
    if as_tensor:
        gains, bias, start = map(torch.from_numpy, (gains, bias, start))
    found = solve(lambda y: gains * y + bias, start, solver, rtol=1e-6, atol=0.0, max_steps=60)
    # These methods find the fixed point of an expansion too: it exists, at -1/3.
    assert found.status is Status.CONVERGED
    np.testing.assert_allclose(
        np.asarray(found.value)[:, 0], [100.0, 2.0, 1e-30, -1 / 3, 1 / 1.9], rtol=1e-3
    )


def test_zero_is_a_fixed_point_like_any_other():
    assert solve(lambda y: 0.5 * y, np.zeros((2, 2))).status is Status.CONVERGED
    assert solve(lambda y: 0.5 * y, np.ones((2, 2)), atol=1e-9).status is Status.CONVERGED


def test_start_is_left_alone_and_in_place_maps_are_taken():
    start = np.ones((2, 3), np.float32)

    def f(y, out):
        np.multiply(y, 0.25, out=out)
        out += 1.0

    found = solve(f, start, inplace=True)
    assert (start == 1.0).all() and found.value.dtype == np.float32
    np.testing.assert_allclose(found.value, 4.0 / 3.0, rtol=1e-6)


def test_report_holds_no_value():
    found = solve(lambda y: 0.5 * y, np.ones((2, 2)))
    assert not hasattr(found.report, "value") and found.report.status is found.status


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.05, 0.9))
def test_every_solver_meets_the_tolerance_it_reports(seed, radius):
    f, exact = affine(radius, n=2, m=6, seed=seed)
    for solver in ALL:
        found = solve(f, np.zeros_like(exact), solver, rtol=1e-9, max_steps=1000)
        assert found.status is Status.CONVERGED
        # One more evaluation: a contraction with factor radius moves the value by less.
        rms = np.sqrt(((f(found.value) - found.value) ** 2).mean(axis=1))
        assert (rms <= radius * found.residual + 1e-14).all()


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e300])
@pytest.mark.parametrize("solver", ALL, ids=NAMES)
def test_scales_whose_squares_are_no_numbers(solver, scale):
    found = solve(lambda y: 0.5 * y + scale, np.zeros((2, 3)), solver, atol=0.0)
    assert found.status is Status.CONVERGED and found.iterations > 1
    np.testing.assert_allclose(found.value / (2 * scale), 1.0, rtol=1e-5)
    single = np.float32(1e-30 if scale < 1 else 1e30)
    for start in (np.zeros((2, 3), np.float32), torch.zeros(2, 3)):
        short = solve(lambda y: 0.5 * y + single, start, solver, atol=0.0)
        assert short.status is Status.CONVERGED
        np.testing.assert_allclose(np.asarray(short.value) / (2 * single), 1.0, rtol=1e-5)


@pytest.mark.parametrize("solver", ALL, ids=NAMES)
def test_maps_may_work_in_place_and_hold_weights_with_gradients(solver):
    """In place, y - f(y) would vanish at once; weights with gradients would record the solve."""
    wanted = solve(np.cos, np.zeros((2, 1)), solver, rtol=1e-10).value
    with np.errstate(all="ignore"):
        found = solve(lambda y: np.cos(y, out=y), np.zeros((2, 1)), solver, rtol=1e-10)
    np.testing.assert_array_equal(found.value, wanted)
    W = torch.nn.Parameter(torch.eye(3, dtype=torch.float64))
    start = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    for f in (lambda y: torch.cos(y @ W), lambda y: y.cos_()):
        value = solve(f, start, solver, rtol=1e-10).value
        assert not value.requires_grad
        np.testing.assert_allclose(value.numpy(), wanted[0, 0], rtol=1e-8)


@pytest.mark.parametrize("solver", ALL, ids=NAMES)
def test_precisions_that_lapack_lacks(solver):
    for dtype in (np.float16, np.longdouble):
        start = np.zeros((2, 3), dtype)
        found = solve(lambda y: (0.5 * y + 1).astype(y.dtype), start, solver, rtol=1e-2)
        assert found.status is Status.CONVERGED and found.value.dtype == dtype
        np.testing.assert_allclose(found.value.astype(float), 2.0, rtol=0.03)
    half = torch.zeros(2, 3, dtype=torch.bfloat16)
    assert solve(lambda y: 0.5 * y + 1, half, solver, rtol=0.05).status is Status.CONVERGED


def test_what_is_not_like_y_is_refused():
    for start in (np.zeros((2, 3)), torch.zeros(2, 3)):
        with pytest.raises(TypeError, match="f must return"):
            solve(lambda y: 0.5 * y + 1j, start)
    with pytest.raises(TypeError, match="y0 must be a numpy array"):
        solve(lambda y: 0.5 * y, np.ma.masked_array(np.zeros((2, 3)), True))


def test_bad_arguments_are_named():
    y = np.zeros((2, 2))
    for bad, error, words in (
        ({"solver": "anderson"}, TypeError, "solver"),
        ({"rtol": 0.0}, ValueError, "rtol"),
        ({"rtol": 1e-17}, ValueError, "rtol must be at least"),
        ({"atol": -1.0}, ValueError, "atol"),
        ({"max_steps": 0}, ValueError, "max_steps"),
        ({"max_step": 3}, TypeError, "max_step"),
    ):
        with pytest.raises(error, match=words):
            solve(lambda y: y, y, **bad)
    for start in ([[1.0]], np.zeros(3), np.zeros((2, 2), int), np.zeros((0, 2)), torch.zeros(3)):
        with pytest.raises((TypeError, ValueError), match="y0 must be"):
            solve(lambda y: y, start)
    with pytest.raises(TypeError, match="f must return"):
        solve(lambda y: y[:1], y)
    for make in (lambda: Picard(0.0), lambda: Anderson(memory=0), lambda: Broyden(memory=1.5)):
        with pytest.raises((TypeError, ValueError), match=r"damping|memory"):
            make()
    with pytest.raises(ValueError, match="ridge"):
        Anderson(ridge=-1.0)
    assert issubclass(solvers.NotConvergedWarning, UserWarning)
