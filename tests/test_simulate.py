"""Finite-width simulators against the infinite-width kernels, by a declared statistical rule.

Rule: R independent networks of width m. For each kernel entry,
z = |mean - theory| / (standard error + B / m), where B / m allows for the bias of order 1/m. The
test fails when the largest z of its E entries passes the Bonferroni threshold of Student's t with
R - 1 degrees of freedom at a false-alarm rate of 1e-6 for the whole test.
"""

import numpy as np
import pytest
from scipy import stats

from implicitnn import kernels, simulate
from implicitnn.activations import (
    elu,
    gelu,
    hard_tanh,
    leaky_relu,
    quadratic,
    relu,
    swish,
    tanh,
)
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ, ENN

REPLICAS = 40
WIDTH = 160
BIAS = 0.3
FALSE_ALARMS = 1e-6
SPECS = [
    DEQ(relu, 0.2),
    DEQ(tanh, 0.2),
    DEQ(swish, 0.3),
    DEQ(leaky_relu(0.1), 0.2, sigma_c2=0.2),
    DEQ(elu, 0.2, centred=False),
    DEQ(hard_tanh(), 0.3),
    ENN((relu,)),
    ENN((gelu, tanh)),
    ENN((hard_tanh(), leaky_relu(0.2), swish)),
]


def samples() -> np.ndarray:
    X = np.random.default_rng(0).standard_normal((4, 10)) / np.sqrt(10)
    X[1] = 0.8 * X[0] + 0.3 * X[1]
    return X


def largest_deviation(draws: np.ndarray, theory: np.ndarray) -> float:
    upper = np.triu_indices(theory.shape[0])
    values = draws[:, upper[0], upper[1]]
    error = values.std(axis=0, ddof=1) / np.sqrt(REPLICAS)
    scale = np.sqrt(np.outer(np.diag(theory), np.diag(theory)))[upper]
    return float(
        (np.abs(values.mean(axis=0) - theory[upper]) / (error + BIAS * scale / WIDTH)).max()
    )


def threshold(entries: int) -> float:
    return float(stats.t.isf(FALSE_ALARMS / (2 * entries), REPLICAS - 1))


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_theory_agrees_with_simulation(spec):
    X = samples()
    rng = np.random.default_rng(2024)
    names = ["published", "all"] if isinstance(spec, DEQ) else ["all"]
    draws = {name: [] for name in ["ck", *names]}
    for _ in range(REPLICAS):
        draws["ck"].append(simulate.ck(spec, X, WIDTH, rng))
        for name in names:
            draws[name].append(simulate.ntk(spec, X, WIDTH, rng, name))
    limit = threshold(10)
    assert largest_deviation(np.array(draws["ck"]), kernels.ck(spec, X)) < limit
    for name in names:
        assert largest_deviation(np.array(draws[name]), kernels.ntk(spec, X, params=name)) < limit


def test_the_rule_rejects_a_wrong_theory():
    """Taking the kernel of all weights for that of readout and recurrent weights is noticed."""
    X, spec = samples(), DEQ(relu, 0.2)
    rng = np.random.default_rng(7)
    draws = np.array([simulate.ntk(spec, X, WIDTH, rng) for _ in range(REPLICAS)])
    assert largest_deviation(draws, kernels.ntk(spec, X, params="all")) > threshold(10)


@pytest.mark.parametrize("spec", [DEQ(swish, 0.3, sigma_c2=0.1), ENN((tanh, swish))], ids=repr)
def test_tangent_kernel_is_the_gram_matrix_of_gradients(spec):
    """Against a Jacobian by central differences over every single weight."""
    X, m, seed = samples()[:2], 5, 3

    class Replay(np.random.Generator):
        """A generator that returns prepared weights in order."""

        def __init__(self, weights):
            super().__init__(np.random.PCG64(0))
            self.weights = list(weights)

        def standard_normal(self, size=None):
            return self.weights.pop(0)

    rng = np.random.default_rng(seed)
    p = X.shape[1]
    if isinstance(spec, DEQ):
        weights = [rng.standard_normal(s) for s in ((m, m), (m, p), (m,), (m,))]
    else:
        weights = [rng.standard_normal(s) for s in ((m, p), (m, m), (m,))]

    def output(w):
        return simulate.features(spec, X, m, Replay([*w, *w])) @ w[-1]

    gradient = []
    for k, array in enumerate(weights):
        for place in np.ndindex(array.shape):
            moved = []
            for step in (1e-5, -1e-5):
                copy = [a.copy() for a in weights]
                copy[k][place] += step
                moved.append(output(copy))
            gradient.append((moved[0] - moved[1]) / 2e-5)
    jacobian = np.array(gradient)
    direct = simulate.ntk(spec, X, m, Replay(weights), "all")
    np.testing.assert_allclose(direct, jacobian.T @ jacobian, rtol=1e-6, atol=1e-8)


def test_same_seed_same_network():
    X, spec = samples(), DEQ(relu, 0.2)
    assert (simulate.ck(spec, X, 30, 5) == simulate.ck(spec, X, 30, 5)).all()
    F = simulate.features(spec, X, 30, 5)
    assert (simulate.ck(spec, X, 30, 5) == F @ F.T).all()


def test_divergence_is_reported():
    with pytest.raises(NotWellPosedError, match="did not converge"):
        simulate.features(DEQ(leaky_relu(0.5), 1.2, 1.0), 1e3 * samples(), 2, 1)


def test_bad_arguments_are_named():
    spec = DEQ(relu, 0.2)
    with pytest.raises(TypeError, match="rng"):
        simulate.ck(spec, samples(), 10, None)
    with pytest.raises(ValueError, match="width"):
        simulate.ck(spec, samples(), 0, 1)
    with pytest.raises(ValueError, match="params"):
        simulate.ntk(spec, samples(), 10, 1, "none")


def test_hostile_samples_and_widths_are_named():
    deq, deep = DEQ(tanh, 0.2), ENN((quadratic(1.0, 1.0),) * 3)
    for value, error, text in (
        (np.full((2, 2), 1e200), ValueError, r"X must be at most 1e\+50 in size"),
        (np.ma.ones((2, 2)), TypeError, "X must not be a masked array"),
        ([[1, 2], [3]], ValueError, "X must be a rectangular array"),
    ):
        with pytest.raises(error, match=text):
            simulate.ck(deq, value, 10, 0)
    with pytest.raises(ValueError, match="width must be at most 9007199254740992"):
        simulate.ck(deq, np.eye(2), 10**30, 0)
    with pytest.raises(ValueError, match=r"width must be at most .* columns of weights"):
        simulate.ck(deq, np.eye(2), 10**10, 0)
    with np.errstate(all="raise"), pytest.raises(ValueError, match="overflows on these samples"):
        simulate.ck(deep, 1e49 * np.eye(2), 10, 0)


@pytest.mark.parametrize("size", [0.0, 1e-200, 1e-40, 1e40])
def test_samples_of_any_size_in_a_strict_numpy(size):
    with np.errstate(all="raise"):
        for spec in (DEQ(tanh, 0.2), DEQ(relu, 0.2), ENN((elu, swish))):
            assert np.isfinite(simulate.ntk(spec, size * np.eye(3), 20, 0, "all")).all()
