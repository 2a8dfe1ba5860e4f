"""Constants, conditions and bounds of the convergence theorems; Lemma 5.1."""

import math

import numpy as np
import pytest

from implicitnn import infinite_depth as deep
from implicitnn.infinite_depth import Params, Status
from implicitnn.studies import _admissible


def admissible(seed, *, flow=False):
    """A random start at which the theorems apply; every second one has b0 different from 0."""
    rng = np.random.default_rng([seed, int(flow)])
    setting = _admissible.draw(int(rng.integers(2, 9)), rng, bias=seed % 2 == 1)
    return setting.params, setting.X, setting.y


@pytest.mark.parametrize("seed", range(30))
def test_descent_stays_under_its_bound_and_every_step_of_the_proof_holds(seed):
    params, X, y = admissible(seed)
    c = deep.conditions(params, X, y)
    assert c.descent_holds
    eta, seen = c.eta_max, []
    epochs = min(400, math.ceil(math.log(100) / (-2 * math.log1p(-eta * c.alpha0**2 / 8))) + 1)

    def check(_epoch, now):
        Z = deep.forward(now, X).Z
        found = deep.gradients(now, X, y)
        r = np.linalg.norm(found.residual)
        assert np.linalg.norm(now.W - params.W) <= c.radii[0]
        assert np.linalg.norm(now.A - params.A) <= c.radii[1]
        assert np.linalg.norm(now.b - params.b) <= c.radii[2]
        assert np.linalg.norm(Z) <= c.B_Z
        assert deep.smallest_singular_value(Z) >= c.alpha0 / 2
        for gradient, bound in ((found.b, c.B_Z), (found.A, c.B_A), (found.W, c.B_W)):
            assert np.linalg.norm(gradient) <= bound * r * (1 + 1e-10) + 1e-300
        if seen and seen[-1][1] > 1e-9 * c.r0:
            before, r_before = seen[-1]
            assert np.linalg.norm(Z - before) <= eta * c.C_Z * r_before * (1 + 1e-6)
        seen.append((Z, r))

    run = deep.descend(params, X, y, eta, epochs, observe=check)
    assert run.status is Status.COMPLETED
    bound = c.bound(run.trace.epoch, eta)
    assert bound[-1] <= bound[0] / 99
    # below 1e-20 of the start the loss is rounding
    assert (run.trace.loss <= bound * (1 + 1e-9) + 1e-20 * bound[0]).all()


@pytest.mark.parametrize("seed", range(10))
def test_flow_stays_under_its_bound(seed):
    params, X, y = admissible(seed, flow=True)
    c = deep.conditions(params, X, y)
    assert c.flow_holds
    times = np.linspace(0, 2 * math.log(110) / c.alpha0**2, 12)
    run = deep.flow(params, X, y, times)
    assert run.status is Status.COMPLETED
    bound = c.flow_bound(times)
    assert bound[-1] < bound[0] / 100
    assert (run.trace.loss <= bound * (1 + 1e-6) + 1e-14 * bound[0]).all()
    assert (run.trace.sigma_min >= c.alpha0 / 2).all()


def test_flow_follows_many_small_steps_of_descent():
    params, X, y = admissible(1)
    c = deep.conditions(params, X, y)
    time = 1.0 / c.alpha0**2
    exact = deep.flow(params, X, y, np.array([time])).trace.loss[0]
    errors = []
    for steps in (200, 400):
        run = deep.descend(params, X, y, time / steps, steps, record_every=steps)
        errors.append(abs(run.trace.loss[-1] - exact))
    # first order: half the step, half the error
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.05)


def test_constants_are_those_of_the_statement():
    params, X, y = admissible(3)
    c = deep.conditions(params, X, y, radii=(0.5, 2.0, 0.25))
    room = 1 - c.g0
    assert c.l1 == pytest.approx(np.linalg.norm(params.W, 2) + 0.5, rel=1e-12, abs=0)
    assert c.l2 == pytest.approx(np.linalg.norm(params.A, 2) + 2.0, rel=1e-12, abs=0)
    assert c.l3 == pytest.approx(np.linalg.norm(params.b) + 0.25, rel=1e-12, abs=0)
    assert c.g0 == pytest.approx(params.gamma * c.l2, rel=1e-12, abs=0)
    B_Z = c.l1 * np.linalg.norm(X) / room
    B_A, B_W = params.gamma * B_Z * c.l3 / room, c.l3 * np.linalg.norm(X, 2) / room
    C_Z = (params.gamma * B_Z * B_A + np.linalg.norm(X, 2) * B_W) / room
    found = (c.B_Z, c.B_A, c.B_W, c.C_Z, c.eta_max)
    assert found == pytest.approx((B_Z, B_A, B_W, C_Z, B_Z**-2), rel=1e-12, abs=0)
    sides = {i.name: (i.left, i.right) for i in c.descent}
    assert sides["alpha0^2 >= 8 r0 B_A/rho_A"] == pytest.approx(
        (c.alpha0**2, 8 * c.r0 * c.B_A / 2.0), rel=1e-12
    )
    assert sides["alpha0^3 >= 16 r0 C_Z"] == pytest.approx(
        (c.alpha0**3, 16 * c.r0 * c.C_Z), rel=1e-12
    )
    assert {i.name for i in c.flow} >= {"alpha0^2 >= 4 r0 B_Z/rho_b", "alpha0^3 >= 8 r0 C_Z"}


def test_bound_is_refused_where_the_theorem_says_nothing():
    params, X, y = admissible(3)
    c = deep.conditions(params, X, y)
    assert float(c.bound(0)) == pytest.approx(0.5 * c.r0**2)
    with pytest.raises(ValueError, match="eta must be at most"):
        c.bound(1, 2 * c.eta_max)
    small = deep.conditions(params.scaled(1e-2), X, y)
    assert not small.descent_holds
    assert small.failures()
    for call in (lambda: small.bound(1), lambda: small.flow_bound(1.0)):
        with pytest.raises(ValueError, match="does not apply"):
            call()


def test_smallest_beta_is_the_edge():
    for seed in (0, 2, 4, 6):
        params, X, y = admissible(seed)
        found = deep.smallest_beta(params, X, y)
        assert found.beta is not None
        for factor, holds in ((1 + 1e-6, True), (1 - 1e-6, False)):
            direct = deep.conditions(params.scaled(factor * found.beta), X, y)
            assert direct.descent_holds is holds
        assert found.conditions.alpha0 == pytest.approx(
            deep.conditions(params.scaled(found.beta), X, y).alpha0, rel=1e-9
        )


def test_no_beta_is_said_with_the_reason():
    params, X, y = admissible(0)
    far = Params(params.W, params.A, np.full(params.width, 10.0), params.gamma)
    found = deep.smallest_beta(far, X, y)
    assert found.beta is None
    assert "r0" in found.text


def hostile(name):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((6, 5)), np.array([1.0, -1, 1, -1, 1, -1])
    params = deep.identity(5, 12, 0.1, 1)
    if name == "gamma one":
        params = deep.identity(5, 12, 1.0, 1)
    elif name == "m < N":
        params = deep.identity(5, 4, 0.1, 1)
    elif name == "duplicate rows":
        X[1] = X[0]
    elif name == "zero row":
        X[2] = 0.0
    elif name == "zero data":
        X = 0 * X
    elif name == "all units dead":
        params = Params(-np.abs(params.W), params.A, params.b, 0.1)
        X = np.abs(X)
    return params, X, y


HOSTILE = ("gamma one", "m < N", "duplicate rows", "zero row", "zero data", "all units dead")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_settings_fail_the_conditions_in_words(name):
    c = deep.conditions(*hostile(name))
    assert not c.descent_holds and not c.flow_holds
    wanted = "g0" if name == "gamma one" else "alpha0 > 0"
    assert any(wanted in text for text in c.failures())
    assert not any(math.isnan(i.left) or math.isnan(i.right) or math.isnan(i.slack)
                   for i in c.descent + c.flow)  # fmt: skip
    assert deep.smallest_beta(*hostile(name), largest=1e12).beta is None


def test_a_fitted_start_needs_nothing_but_full_rank():
    params, X, _ = admissible(2)
    y = deep.forward(params, X).Z @ params.b
    c = deep.conditions(params, X, y)
    assert c.r0 == pytest.approx(0.0, abs=1e-12)


def weights(kind, m, rng):
    if kind == "triangular":
        return np.triu(rng.uniform(size=(m, m)), 1)
    if kind == "rank one":
        return np.outer(rng.uniform(size=m), rng.uniform(size=m))
    if kind == "permutation":
        return 3 * np.eye(m)[rng.permutation(m)]
    share = 0.2 if kind == "sparse" else 1.0
    return rng.uniform(size=(m, m)) * (rng.uniform(size=(m, m)) < share)


@pytest.mark.parametrize("kind", ["dense", "triangular", "rank one", "permutation", "sparse"])
def test_lemma_5_1(kind):
    """Z = Phi (I - gamma A)^{-1} for nonnegative A; rounding of a solve at condition 1/(1-g)."""
    for seed in range(60):
        rng = np.random.default_rng([seed, len(kind)])
        N, d, m = (int(k) for k in rng.integers(1, 12, 3))
        A = weights(kind, m, rng)
        norm = float(np.linalg.norm(A, 2))
        gamma = rng.uniform(0.05, 0.9) / norm if norm > 0 else 0.5
        params = Params(rng.standard_normal((d, m)), A, np.zeros(m), gamma)
        solved = deep.forward(params, rng.standard_normal((N, d)), tol=1e-15)
        closed = np.linalg.solve((np.eye(m) - gamma * A).T, solved.Phi.T).T
        scale = np.abs(closed).max() if closed.any() else 1.0
        assert np.abs(solved.Z - closed).max() <= 1e-12 * scale
        low = deep.smallest_singular_value(solved.Phi) / (1 + gamma * norm)
        assert deep.smallest_singular_value(solved.Z) >= low * (1 - 1e-10)


def test_lemma_5_1_needs_nonnegative_weights():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((8, 8))
    params = Params(rng.standard_normal((5, 8)), A, np.zeros(8), 0.5 / np.linalg.norm(A, 2))
    solved = deep.forward(params, rng.standard_normal((4, 5)))
    closed = solved.Phi @ np.linalg.inv(np.eye(8) - params.gamma * A)
    assert np.abs(solved.Z - closed).max() > 0.01
