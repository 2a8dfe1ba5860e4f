"""Infinite-depth networks: fixed point, gradients, Gram matrix, parameters, norms."""

import numpy as np
import pytest
import torch

from implicitnn import infinite_depth as deep
from implicitnn._infinite_depth import finite, norms
from implicitnn.infinite_depth import Params, Status
from implicitnn.studies.implicit_gradients import stencil


def problem(seed, N=6, d=4, m=9, rate=0.6):
    """Random parameters with signs everywhere, data and labels; gamma ||A|| = rate."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((m, m))
    gamma = rate / np.linalg.norm(A, 2)
    params = Params(rng.standard_normal((d, m)), A, rng.standard_normal(m), gamma)
    return params, rng.standard_normal((N, d)), rng.standard_normal(N)


def loss(W, A, b, gamma, X, y):
    Z = deep.forward(Params(W, A, b, gamma), X, tol=1e-16).Z
    return 0.5 * np.sum((Z @ b - y) ** 2)


@pytest.mark.parametrize("seed", range(20))
def test_contraction_bounds_of_lemma_3_1(seed):
    rng = np.random.default_rng(seed)
    params, X, _ = problem(seed, rate=rng.uniform(0.05, 0.99))
    Phi = np.maximum(X @ params.W, 0)
    g = params.rate
    P, Q = rng.standard_normal((2, *Phi.shape))
    step = lambda Z: np.maximum(params.gamma * Z @ params.A + Phi, 0)  # noqa: E731
    assert np.linalg.norm(step(P) - step(Q)) <= g * np.linalg.norm(P - Q) * (1 + 1e-14)
    solved = deep.forward(params, X)
    assert solved.status is Status.CONVERGED
    assert np.linalg.norm(solved.Z) <= np.linalg.norm(Phi) / (1 - g) * (1 + 1e-12)
    # the residual is at most (1 + g) times the error
    error = max(solved.report.error_bound, 1e-15 * np.linalg.norm(Phi) / (1 - g))
    assert np.linalg.norm(step(solved.Z) - solved.Z) <= (1 + g) * error


@pytest.mark.parametrize("seed", range(5))
def test_fixed_point_is_unique_and_the_error_bound_holds(seed):
    params, X, _ = problem(seed, rate=0.9)
    exact = deep.forward(params, X, tol=1e-15).Z
    start = 100 * np.random.default_rng(seed).standard_normal(exact.shape)
    for tol in (1e-3, 1e-6, 1e-9):
        solved = deep.forward(params, X, start=start, tol=tol)
        distance = np.linalg.norm(solved.Z - exact)
        assert distance <= solved.report.error_bound * (1 + 1e-6)
        assert solved.report.error_bound <= tol * np.linalg.norm(solved.Z)


def test_warm_start_needs_fewer_iterations():
    params, X, _ = problem(3, rate=0.9)
    cold = deep.forward(params, X)
    nearby = Params(params.W * (1 + 1e-6), params.A, params.b, params.gamma)
    assert deep.forward(nearby, X, start=cold.Z).iterations < 0.7 * cold.iterations


def test_not_well_posed_is_said_and_nothing_is_computed():
    params = Params(np.eye(3), np.eye(3), np.ones(3), 1.0)
    solved = deep.forward(params, np.eye(3))
    assert solved.status is Status.NOT_WELL_POSED
    assert solved.iterations == 0
    assert not solved.Z.any()
    found = deep.gradients(params, np.eye(3), np.ones(3))
    assert found.status is Status.NOT_WELL_POSED
    assert not found.W.any()
    with pytest.raises(ValueError, match="need not contract"):
        deep.gram(params, np.eye(3))


def test_beyond_the_edge_divergence_and_convergence_are_told_apart():
    grows = Params(np.eye(3), 2 * np.eye(3), np.ones(3), 1.0)
    solved = deep.forward(grows, np.eye(3), require_contraction=False)
    assert solved.status is Status.DIVERGED
    # relu(-2 Z + Phi) on one unit alternates between 0 and Phi
    flips = Params(np.eye(1), -2 * np.eye(1), np.ones(1), 1.0)
    solved = deep.forward(flips, np.eye(1), require_contraction=False, max_iterations=50)
    assert solved.status is Status.MAX_ITERATIONS
    # a nilpotent A has a fixed point for every gamma
    nilpotent = Params(np.ones((1, 2)), np.array([[0.0, 5.0], [0.0, 0.0]]), np.ones(2), 1.0)
    solved = deep.forward(nilpotent, np.ones((1, 1)), require_contraction=False)
    assert solved.status is Status.CONVERGED
    assert solved.Z.tolist() == [[1.0, 6.0]]


def test_iteration_limit_is_reported():
    params, X, y = problem(1, rate=0.999)
    assert deep.forward(params, X, max_iterations=3).status is Status.MAX_ITERATIONS
    assert deep.gradients(params, X, y, max_iterations=3).status is Status.MAX_ITERATIONS


def test_tiny_and_zero_inputs_are_solved():
    params, X, y = problem(2)
    assert deep.forward(params, 0 * X).Z.any() == np.False_
    tiny = deep.forward(params, 1e-140 * X)
    # homogeneous of degree one in X
    np.testing.assert_allclose(tiny.Z, 1e-140 * deep.forward(params, X).Z, rtol=1e-10)
    assert deep.gradients(params, 0 * X, y).status is Status.CONVERGED


@pytest.mark.parametrize("seed", range(6))
def test_gradients_against_finite_differences(seed):
    """Fourth-order differences: truncation about 1e-13, rounding 1e-16 L/h = 1e-11."""
    params, X, y = problem(seed, rate=0.3 + 0.1 * seed)
    found = deep.gradients(params, X, y, tol=1e-15)
    h = 1e-4
    rng = np.random.default_rng([seed, 7])
    for _ in range(8):
        direction = [rng.standard_normal(a.shape) for a in (params.W, params.A, params.b)]
        size = np.sqrt(sum((a**2).sum() for a in direction))
        direction = [a / size for a in direction]
        seen = stencil(params, X, y, tuple(direction), h)
        # No unit may cross a kink, of Z or of X W, in the stencil: the loss is not smooth there.
        assert not len(seen.crossing)
        exact = sum(
            float((a * b).sum())
            for a, b in zip((found.W, found.A, found.b), direction, strict=True)
        )
        scale = np.sqrt(sum((a**2).sum() for a in (found.W, found.A, found.b)))
        assert abs(seen.derivative - exact) <= 1e-8 * max(1.0, scale)


@pytest.mark.parametrize("seed", range(4))
def test_every_entry_of_the_gradients(seed):
    params, X, y = problem(seed, N=4, d=3, m=5, rate=0.5)
    found = deep.gradients(params, X, y, tol=1e-15)
    h = 1e-4
    for name in ("W", "A", "b"):
        arrays = {"W": params.W, "A": params.A, "b": params.b}
        numeric = np.empty_like(arrays[name])
        for index in np.ndindex(numeric.shape):
            values = []
            for t in (h, -h, 2 * h, -2 * h):
                moved = {k: v.copy() for k, v in arrays.items()}
                moved[name][index] += t
                values.append(loss(**moved, gamma=params.gamma, X=X, y=y))
            numeric[index] = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
        exact = getattr(found, name)
        assert np.abs(numeric - exact).max() <= 1e-8 * max(1.0, np.abs(exact).max())


@pytest.mark.parametrize("seed", range(4))
def test_gradients_against_unrolled_automatic_differentiation(seed):
    params, X, y = problem(seed, N=10, d=5, m=20, rate=0.7)
    found = deep.gradients(params, X, y, tol=1e-15)
    W, A, b = (torch.tensor(a, requires_grad=True) for a in (params.W, params.A, params.b))
    Phi = torch.relu(torch.tensor(X) @ W)
    Z = torch.zeros_like(Phi)
    for _ in range(120):  # 0.7^120 = 3e-19
        Z = torch.relu(params.gamma * Z @ A + Phi)
    (0.5 * ((Z @ b - torch.tensor(y)) ** 2).sum()).backward()
    for mine, other in ((found.W, W), (found.A, A), (found.b, b)):
        exact = other.grad.numpy()
        assert np.abs(mine - exact).max() <= 1e-11 * np.abs(exact).max()


@pytest.mark.parametrize("seed", range(4))
def test_gram_is_the_product_of_the_jacobians(seed):
    params, X, _ = problem(seed, rate=0.7)
    rows = []
    for i in range(len(X)):
        # residual 1 at sample i: the gradient of the loss is that of the prediction
        target = deep.forward(params, X[i : i + 1], tol=1e-15).Z @ params.b - 1.0
        g = deep.gradients(params, X[i : i + 1], target, tol=1e-15)
        rows.append(np.concatenate([g.W.ravel(), g.A.ravel(), g.b]))
    J = np.array(rows)
    parts = deep.gram(params, X, tol=1e-15)
    np.testing.assert_allclose(parts.total, J @ J.T, rtol=1e-11, atol=1e-12 * np.abs(J @ J.T).max())
    for part in (parts.readout, parts.hidden, parts.inputs):
        values = np.linalg.eigvalsh(part)
        assert values[0] >= -1e-13 * values[-1]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_finite_depth_gradients_against_automatic_differentiation(depth):
    params, X, y = problem(depth, N=8, d=5, m=11, rate=1.5)
    W, A, b = (torch.tensor(a, requires_grad=True) for a in (params.W, params.A, params.b))
    Phi = torch.relu(torch.tensor(X) @ W)
    Z = Phi
    for _ in range(depth - 1):
        Z = torch.relu(params.gamma * Z @ A + Phi)
    (0.5 * ((Z @ b - torch.tensor(y)) ** 2).sum()).backward()
    states = finite.layers(params, X, depth)
    found = finite.finite_gradients(params, X, states[-1] @ params.b - y, states)
    for mine, other in zip(found, (W, A, b), strict=True):
        exact = np.zeros(mine.shape) if other.grad is None else other.grad.numpy()
        np.testing.assert_allclose(mine, exact, rtol=1e-12, atol=1e-12)


def test_depth_one_is_gamma_zero():
    params, X, y = problem(0)
    shallow = Params(params.W, params.A, params.b, 0.0)
    states = finite.layers(params, X, 1)
    found = finite.finite_gradients(params, X, states[-1] @ params.b - y, states)
    exact = deep.gradients(shallow, X, y)
    for mine, other in zip(found, (exact.W, exact.A, exact.b), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-13, atol=1e-13)


def test_scaling_keeps_gamma_times_A_and_scales_the_prediction():
    params, X, _ = problem(5)
    base, scaled = deep.forward(params, X), deep.forward(params.scaled(1e3), X)
    np.testing.assert_allclose(scaled.Z, 1e3 * base.Z, rtol=1e-10, atol=1e-9)
    assert params.scaled(1e3).rate == pytest.approx(params.rate, rel=1e-12)


@pytest.mark.parametrize("make", [deep.identity, deep.nonnegative, deep.gaussian])
def test_initialisations_depend_on_the_seed_only(make):
    first, again, other = make(7, 12, 0.1, 3), make(7, 12, 0.1, 3), make(7, 12, 0.1, 4)
    assert np.array_equal(first.W, again.W) and np.array_equal(first.A, again.A)
    assert not np.array_equal(first.W, other.W)
    assert first.gamma == 0.1


def test_initialisations_have_the_stated_moments():
    # 40,000 entries: the variance has standard error sqrt(2/40000) = 0.007 relative; 6 of them.
    W = deep.identity(100, 400, 0.1, 0).W
    assert W.var() == pytest.approx(1 / 400, rel=0.042)
    normal = deep.gaussian(100, 400, 0.1, 0)
    assert normal.W.var() == pytest.approx(1.0, rel=0.042)
    assert deep.operator_norm(normal.A) == pytest.approx(2.0, rel=0.05)
    assert deep.nonnegative(5, 300, 0.2, 0).A.min() >= 0


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"W": np.ones(3)}, "W must have 2 axes"),
        ({"A": np.ones((3, 2))}, "asks for A"),
        ({"b": np.ones(4)}, "asks for A"),
        ({"gamma": -0.1}, "must not be negative"),
        ({"W": np.full((2, 3), np.nan)}, "must be finite"),
    ],
)
def test_bad_parameters_are_refused(change, error):
    given = {"W": np.ones((2, 3)), "A": np.eye(3), "b": np.zeros(3), "gamma": 0.1}
    with pytest.raises(ValueError, match=error):
        Params(**(given | change))


def test_bad_data_are_refused():
    params, X, y = problem(0)
    with pytest.raises(ValueError, match="X has 3 columns"):
        deep.forward(params, X[:, :3])
    with pytest.raises(ValueError, match="y has 5 entries"):
        deep.gradients(params, X, y[:5])
    with pytest.raises(ValueError, match="start must have shape"):
        deep.forward(params, X, start=np.zeros((2, 2)))


@pytest.mark.parametrize("shape", [(40, 30), (200, 150), (150, 300)])
def test_operator_norm_against_singular_values(shape):
    A = np.random.default_rng(0).standard_normal(shape)
    u, s, v = norms.top_triple(A)
    assert s == pytest.approx(np.linalg.svd(A, compute_uv=False)[0], rel=1e-12)
    np.testing.assert_allclose(A @ v, s * u, atol=1e-6 * s)


@pytest.mark.parametrize("A", [np.zeros((200, 200)), np.eye(200), -3.0 * np.eye(200)])
def test_operator_norm_of_matrices_without_gaps(A):
    assert deep.operator_norm(A) == pytest.approx(abs(A[0, 0]), rel=1e-12)


@pytest.mark.parametrize(("size", "above"), [(30, 3), (200, 2), (40, 35)])
def test_projection_clips_singular_values(size, above):
    rng = np.random.default_rng(size)
    u, v = (np.linalg.qr(rng.standard_normal((size, size)))[0] for _ in range(2))
    values = np.r_[np.linspace(3.0, 2.0, above), np.linspace(0.9, 0.1, size - above)]
    projected = norms.project((u * values) @ v.T, 1.0)
    np.testing.assert_allclose(projected, (u * np.minimum(values, 1.0)) @ v.T, atol=1e-9)


def test_smallest_singular_value_of_hard_cases():
    Z = np.random.default_rng(0).standard_normal((4, 9))
    assert deep.smallest_singular_value(Z) == pytest.approx(
        np.sqrt(np.linalg.eigvalsh(Z @ Z.T)[0]), rel=1e-12
    )
    assert deep.smallest_singular_value(Z.T) == 0.0
    assert deep.smallest_singular_value(np.vstack([Z, Z[:1]])) == 0.0
    assert deep.smallest_singular_value(np.zeros((2, 3))) == 0.0
