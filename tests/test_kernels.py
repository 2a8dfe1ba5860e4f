"""Kernels against the scalar reference, closed forms and their own symmetries."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicitnn import kernels
from implicitnn._kernels import homogeneous
from implicitnn._kernels import reference as _reference
from implicitnn.activations import (
    Activation,
    elu,
    erf,
    gelu,
    hard_tanh,
    leaky_relu,
    linear,
    quadratic,
    relu,
    swish,
    tanh,
)
from implicitnn.specs import DEQ, ENN

TOL = 1e-10
SPECS = [
    DEQ(relu, 0.2),
    DEQ(relu, 0.9),
    DEQ(leaky_relu(0.1), 0.9, sigma_c2=0.2),
    DEQ(linear, 0.5),
    DEQ(tanh, 0.9),
    DEQ(swish, 0.2),
    DEQ(elu, 0.9),
    DEQ(erf, 0.2, sigma_c2=0.3),
    DEQ(gelu, 0.9),
    DEQ(hard_tanh(), 0.9),
    DEQ(quadratic(0.1, 0.8), 0.2),
    DEQ(relu, 0.5, 0.5, centred=False),
    ENN((relu,)),
    ENN((tanh, leaky_relu(0.2))),
    ENN((hard_tanh(), swish, relu), centred=False),
]
FAST = [DEQ(relu, 0.9), DEQ(tanh, 0.5), DEQ(hard_tanh(), 0.9), ENN((swish, relu))]


def gaussian_data(n: int, p: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, p)) / np.sqrt(p) * rng.uniform(0.7, 1.4, (n, 1))


def scaled_errors(spec, X, Y, pairs, params):
    """|error| over the geometric mean of the diagonal values, for both kernels."""
    ck, ntk = kernels.ck_and_ntk(spec, X, Y, params)
    Z = X if Y is None else Y
    worst = 0.0
    for i, j in pairs:
        q1, q2, s = X[i] @ X[i], Z[j] @ Z[j], X[i] @ Z[j]
        exact = _reference.entry(spec, q1, q2, s)
        ends = [_reference.entry(spec, q, q, q) for q in (q1, q2)]
        for value, field in ((ck[i, j], "ck"), (ntk[i, j], f"ntk_{params}")):
            scale = np.sqrt(np.prod([getattr(end, field) for end in ends]))
            worst = max(worst, abs(value - getattr(exact, field)) / scale)
    return worst


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_entries_agree_with_the_scalar_reference(spec):
    X = gaussian_data(40, 12, 3)
    cosine = np.corrcoef(X)
    np.fill_diagonal(cosine, 0.0)
    i, j = np.unravel_index(cosine.argmax(), cosine.shape)
    assert scaled_errors(spec, X, None, [(int(i), int(j)), (5, 5)], "all") <= TOL


def test_relu_entries_satisfy_their_own_equation_in_closed_form():
    """Arc-cosine kernel written out here: no table, no quadrature."""
    spec = DEQ(relu, 0.9, tau0=1.2, sigma_c2=0.1)
    X = gaussian_data(50, 9, 0)
    ck, ntk = kernels.ck_and_ntk(spec, X)
    covariance = 0.9 * ck + spec.sigma_b2 * X @ X.T + 0.1
    root = np.sqrt(np.diag(covariance))
    angle = np.arccos(np.clip(covariance / np.outer(root, root), -1, 1))
    curve = (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi)
    mean = spec.offset * root / np.sqrt(2 * np.pi)
    expected = np.outer(root, root) * curve - mean[:, None] - mean + spec.offset**2
    np.testing.assert_allclose(ck, expected, atol=2e-11)
    off = ~np.eye(50, dtype=bool)
    dot = 0.9 * (np.pi - angle) / (2 * np.pi)
    np.testing.assert_allclose(ntk[off], (ck / (1 - dot))[off], atol=5e-10)


def test_linear_network_has_the_geometric_series():
    X = gaussian_data(20, 5, 1)
    ck, ntk = kernels.ck_and_ntk(DEQ(linear, 0.25), X)
    np.testing.assert_allclose(ck, X @ X.T, rtol=0, atol=1e-14)
    np.testing.assert_allclose(ntk, X @ X.T / 0.75, rtol=0, atol=1e-14)


def test_erf_layer_is_williams_kernel():
    X = gaussian_data(30, 6, 2)
    S = X @ X.T
    d = 1 + 2 * np.diag(S)
    expected = 2 / np.pi * np.arcsin(2 * S / np.sqrt(np.outer(d, d)))
    np.testing.assert_allclose(kernels.ck(ENN((erf,)), X), expected, atol=1e-11)


def test_depth_composes():
    """Two layers are one layer applied to the Gram matrix of the first."""
    X = gaussian_data(25, 40, 4)
    two = ENN((tanh, swish))
    first = kernels.ck(ENN((tanh,)), X)
    w, U = np.linalg.eigh(first)
    hidden = U * np.sqrt(np.maximum(w, 0))
    second = kernels.ck(ENN((swish,), tau0=two.taus[1]), hidden)
    np.testing.assert_allclose(kernels.ck(two, X), second, atol=1e-10)


@pytest.mark.parametrize("spec", FAST, ids=repr)
@pytest.mark.parametrize("params", ["published", "all"])
def test_rectangular_equals_the_block_of_the_square(spec, params):
    X = gaussian_data(90, 15, 5)
    whole = kernels.ck_and_ntk(spec, X, params=params)
    part = kernels.ck_and_ntk(spec, X[:70], X[20:], params)
    for square, block in zip(whole, part, strict=True):
        np.testing.assert_allclose(block, square[:70, 20:], rtol=0, atol=2e-10)


@pytest.mark.parametrize("spec", FAST, ids=repr)
def test_duplicates_get_the_diagonal_value(spec):
    X = gaussian_data(70, 30, 6)
    X[40] = X[3]
    for kernel in kernels.ck_and_ntk(spec, X, params="all"):
        assert kernel[3, 40] == pytest.approx(kernel[3, 3], rel=1e-14)


@pytest.mark.parametrize("spec", [DEQ(relu, 0.9), DEQ(hard_tanh(), 0.5), DEQ(tanh, 0.9)], ids=repr)
def test_near_duplicates_keep_their_digits(spec):
    """A tiny step h changes the kernels by a known leading order, far below the rounding of s."""
    X = gaussian_data(30, 50, 7)
    step = np.random.default_rng(0).standard_normal(50) / np.sqrt(50)
    step -= X[0] * (step @ X[0]) / (X[0] @ X[0])
    drop = []
    for h in (1e-6, 2e-6):
        X[1] = X[0] + h * step
        K = kernels.ntk(spec, X)
        drop.append(K[0, 0] - K[0, 1])
    if spec.activation.kinks:  # linear in h
        assert drop[1] / drop[0] == pytest.approx(2.0, abs=1e-3)
    else:
        assert abs(drop[1]) < 1e-10


@pytest.mark.parametrize("spec", FAST, ids=repr)
def test_zero_samples_and_far_outliers(spec):
    X = gaussian_data(40, 20, 8)
    X[0] = 0.0
    X[1] *= 40.0
    pairs = [(1, 5), (1, 1), (0, 1)] if spec.centred and spec.__class__ is ENN else [(1, 5), (1, 1)]
    assert scaled_errors(spec, X, None, pairs, "published") <= TOL
    ck, ntk = kernels.ck_and_ntk(spec, X)
    assert np.isfinite(ck).all() and np.isfinite(ntk).all()


def test_a_silent_sample_gives_zeros():
    X = gaussian_data(10, 4, 9)
    X[2] = 0.0
    for kernel in kernels.ck_and_ntk(DEQ(tanh, 0.9), X, params="all"):
        assert (kernel[2] == 0.0).all()


def test_collinear_and_antipodal_samples():
    X = np.array([[1.0, 0.5], [2.0, 1.0], [-1.0, -0.5], [3.0, 1.5]])
    spec = DEQ(relu, 0.5, 0.5, centred=False)
    ck, ntk = kernels.ck_and_ntk(spec, X)
    np.testing.assert_allclose(ntk[0, 1], 2 * ntk[0, 0], rtol=1e-12)
    np.testing.assert_allclose(ck[0, 3], 3 * ck[0, 0], rtol=1e-12)
    assert scaled_errors(spec, X, None, [(0, 2)], "published") <= TOL


ANGLES = {
    "all alike": lambda rng: rng.uniform(0.0, 0.2, 150),
    "two opposite clusters": lambda rng: np.repeat([0.0, np.pi], 75) + rng.uniform(0, 0.1, 150),
    "at right angles": lambda rng: np.repeat([0.0, np.pi / 2], 75) + rng.uniform(0, 0.01, 150),
    "all around": lambda rng: rng.uniform(0.0, 2 * np.pi, 150),
    "one far from the rest": lambda rng: np.append(rng.uniform(1.0, 1.4, 149), -2.0),
    "one pair that agrees": lambda rng: np.append(np.linspace(0.0, 3.0, 149), 1e-7),
}


@pytest.mark.parametrize("name", ANGLES)
@pytest.mark.parametrize("spec", [DEQ(relu, 0.9), DEQ(leaky_relu(-0.5), 0.2)], ids=repr)
def test_homogeneous_tables_cover_every_range_of_the_angle(spec, name):
    rng = np.random.default_rng(11)
    angle = ANGLES[name](rng)
    X = np.stack([np.cos(angle), np.sin(angle)], axis=1) * rng.uniform(0.8, 1.2, (150, 1))
    cosine = np.cos(angle[:, None] - angle)
    extremes = [np.unravel_index(k, cosine.shape) for k in np.argsort(cosine, axis=None)[[0, -151]]]
    pairs = [*extremes, (0, 149), (149, 70), *rng.integers(150, size=(25, 2))]
    assert scaled_errors(spec, X, None, pairs, "all") < 1e-11
    assert scaled_errors(spec, X, X[::-1].copy(), pairs, "published") < 1e-11


def test_the_usual_range_of_gaps_is_wide_enough_and_stays_off_the_far_end():
    gap = np.linspace(0.1, 0.4, 5000)
    low, high = homogeneous.usual(gap, 1.0)
    inside = (gap >= low**2) & (gap <= high**2)
    assert inside.mean() >= 0.998
    assert high - low < 0.4
    for values in (np.zeros(9), np.ones(9), np.empty(0), np.array([0.5])):
        low, high = homogeneous.usual(values, 1.0)
        assert 0.0 <= low < high <= homogeneous.LAST


def test_single_sample_and_single_feature():
    for spec in FAST:
        one = kernels.ck_and_ntk(spec, [[0.7]])
        many = kernels.ck_and_ntk(spec, [[0.7], [-0.7], [1.1]])
        for a, b in zip(one, many, strict=True):
            assert a.shape == (1, 1)
            assert a[0, 0] == pytest.approx(b[0, 0], rel=1e-12)


def test_wide_norms_with_mismatched_centring():
    X = gaussian_data(80, 30, 10)
    X *= np.exp(np.random.default_rng(1).uniform(np.log(0.1), np.log(10), (80, 1)) / 2)
    for spec in (DEQ(tanh, 0.9, tau0=3.0), DEQ(relu, 0.2, tau0=0.1)):
        order = np.argsort((X**2).sum(axis=1))
        assert scaled_errors(spec, X, None, [(int(order[0]), int(order[-1]))], "all") <= TOL


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_other_dtypes_and_layouts(dtype):
    X = (3 * gaussian_data(12, 8, 11)).astype(dtype)
    spec = DEQ(relu, 0.2)
    expected = kernels.ck(spec, X.astype(np.float64))
    assert (kernels.ck(spec, X) == expected).all()
    assert (kernels.ck(spec, np.asfortranarray(X)) == expected).all()
    assert (kernels.ck(spec, np.repeat(X, 2, axis=0)[::2]) == expected).all()


def test_custom_activation_takes_the_generic_route():
    shrink = Activation(
        "soft",
        lambda t: np.sign(t) * np.log1p(np.maximum(np.abs(t) - 0.5, 0.0)),
        lambda t: np.where(np.abs(t) > 0.5, 1.0 / (0.5 + np.maximum(np.abs(t), 0.5)), 0.0),
        kinks=(-0.5, 0.5),
    )
    X = gaussian_data(30, 60, 12)
    assert scaled_errors(DEQ(shrink, 0.5), X, None, [(0, 1)], "all") <= TOL


def test_results_repeat_exactly_and_are_symmetric():
    X = gaussian_data(150, 20, 13)
    for spec in FAST:
        one, two = kernels.ck_and_ntk(spec, X), kernels.ck_and_ntk(spec, X)
        for a, b in zip(one, two, strict=True):
            assert (a == b).all() and (a == a.T).all()


@pytest.mark.parametrize("n", [33, 64, 96, 129, 200])
def test_mirrored_tiles_agree_with_a_pass_over_every_entry(n):
    # whole tiles, cut ones and those on the diagonal take different ways into the matrix
    X = gaussian_data(n, 20, 15)
    for spec in FAST:
        mirrored = kernels.ck_and_ntk(spec, X, params="all")
        every = kernels.ck_and_ntk(spec, X, X.copy(), params="all")
        for a, b in zip(mirrored, every, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=TOL * a.max())


def test_threads_do_not_change_results(monkeypatch):
    from implicitnn._kernels import threads as _threads

    X = gaussian_data(200, 20, 14)
    for spec in FAST:
        monkeypatch.setattr(_threads, "count", lambda: 1)
        one = kernels.ck_and_ntk(spec, X)
        monkeypatch.setattr(_threads, "count", lambda: 2)
        two = kernels.ck_and_ntk(spec, X)
        for a, b in zip(one, two, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(2, 30), st.integers(1, 12), st.sampled_from(FAST))
def test_positive_semidefinite_and_permutation_equivariant(seed, n, p, spec):
    X = gaussian_data(n, p, seed)
    order = np.random.default_rng(seed).permutation(n)
    plain = kernels.ck_and_ntk(spec, X, params="all")
    moved = kernels.ck_and_ntk(spec, X[order], params="all")
    for a, b in zip(plain, moved, strict=True):
        assert np.linalg.eigvalsh(a)[0] >= -1e-9 * np.trace(a)
        scale = np.sqrt(np.outer(np.diag(a), np.diag(a)))
        assert (np.abs(a[np.ix_(order, order)] - b) <= 3e-10 * scale[np.ix_(order, order)]).all()


@settings(max_examples=15, deadline=None)
@given(seeds, st.integers(2, 20), st.integers(2, 12), st.sampled_from(FAST))
def test_orthogonal_invariance(seed, n, p, spec):
    X = gaussian_data(n, p, seed)
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((p, p)))[0]
    for a, b in zip(
        kernels.ck_and_ntk(spec, X), kernels.ck_and_ntk(spec, X @ rotation), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=0, atol=3e-10 * max(1.0, a.max()))


@settings(max_examples=15, deadline=None)
@given(seeds, st.floats(0.01, 100.0), st.sampled_from([relu, leaky_relu(0.3), linear]))
def test_homogeneous_networks_scale(seed, factor, activation):
    """Scaling data and tau0 by s scales both kernels by s^2."""
    X = gaussian_data(12, 6, seed)
    spec = DEQ(activation, 0.6)
    large = kernels.ck_and_ntk(spec.at(factor), factor * X)
    for a, b in zip(kernels.ck_and_ntk(spec, X), large, strict=True):
        np.testing.assert_allclose(b, factor**2 * a, rtol=0, atol=1e-10 * factor**2 * a.max())


BAD = [
    (np.full((2, 2), np.nan), ValueError, "X must be finite"),
    (np.array([[1.0, np.inf]]), ValueError, "X must be finite"),
    (np.ones(3), ValueError, "X must have 2 axes"),
    (np.ones((0, 3)), ValueError, "X must not be empty"),
    (np.ones((2, 2)) * 1j, TypeError, "X must be real"),
    (np.full((2, 2), 1e200), ValueError, "X is too large"),
    ([["a"]], TypeError, "X must hold real numbers"),
]


@pytest.mark.parametrize(("X", "error", "message"), BAD)
def test_bad_samples_are_named(X, error, message):
    with pytest.raises(error, match=message):
        kernels.ck(DEQ(relu, 0.2), X)


def test_bad_arguments_are_named():
    X = np.eye(2)
    spec = DEQ(relu, 0.2)
    with pytest.raises(ValueError, match="Y must have as many columns"):
        kernels.ck(spec, X, np.ones((2, 3)))
    with pytest.raises(ValueError, match="params must be one of"):
        kernels.ntk(spec, X, params="some")
    with pytest.raises(ValueError, match="tol must lie"):
        kernels.ck(spec, X, tol=1e-15)
    with pytest.raises(TypeError, match="spec must be"):
        kernels.ck(relu, X)


def test_compile_time_is_reported():
    assert kernels.compile_seconds() >= 0.0
