"""Gaussian expectations against exact values and high-precision references."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from implicitnn import gaussian as g
from implicitnn.errors import AccuracyError

TAUS = [1e-3, 0.03, 0.9, 1.0, 7.0, 1e2]
QUICK = settings(max_examples=25, deadline=None, derandomize=True)
correlations = st.floats(-1.0, 1.0) | st.floats(-14.0, 0.0).map(lambda e: 1.0 - 10.0**e)
variances = st.floats(-3.0, 3.0).map(lambda e: 10.0**e)


def relu(t):
    return np.maximum(t, 0.0)


def step(t):
    return np.where(t > 0, 1.0, 0.0)


def reference(f, tau, breaks):
    """E f(tau xi) with 30 digits, cut at the given places in t."""
    with mpmath.workdps(30):
        cuts = sorted({mpmath.mpf(b) / tau for b in breaks if abs(b) < 14 * tau} | {-14, 0, 14})
        density = lambda x: mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)  # noqa: E731
        return float(mpmath.quad(lambda x: f(tau * x) * density(x), cuts))


def double_factorial(n):
    return math.prod(range(n, 0, -2))


@pytest.mark.parametrize("tau", TAUS)
@pytest.mark.parametrize("power", [2, 4, 6, 12])
def test_even_powers(tau, power):
    exact = tau**power * double_factorial(power - 1)
    assert g.expectation(lambda t: t**power, tau) == pytest.approx(exact, rel=2e-14)


@pytest.mark.parametrize("tau", TAUS)
def test_relu_powers(tau):
    mean = g.expectation(relu, tau, (0.0,))
    assert mean == pytest.approx(tau / math.sqrt(2 * math.pi), rel=2e-15)
    square = g.expectation(lambda t: relu(t) ** 2, tau, (0.0,))
    assert square == pytest.approx(tau**2 / 2, rel=2e-15)


@given(tau=st.floats(1e-3, 1e2), place=st.floats(-3.0, 3.0))
@QUICK
def test_kink_and_jump_at_any_place(tau, place):
    kink = place * tau
    density = math.exp(-(place**2) / 2) / math.sqrt(2 * math.pi)
    tail = special.ndtr(-place)
    assert g.expectation(lambda t: step(t - kink), tau, (kink,)) == pytest.approx(tail, rel=1e-13)
    exact = tau * (density - place * tail)
    assert g.expectation(lambda t: relu(t - kink), tau, (kink,)) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("tau", [0.02, 1.0, 50.0])
def test_an_undeclared_kink_is_only_slower(tau):
    kink = 0.3 * tau
    exact = g.expectation(lambda t: np.abs(t - kink), tau, (kink,))
    assert g.expectation(lambda t: np.abs(t - kink), tau) == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("tau", [1e-3, 1.0, 100.0])
@pytest.mark.parametrize("gain", [1.0, 20.0, 100.0])
def test_steep_functions(tau, gain):
    exact = reference(lambda t: mpmath.tanh(gain * t) ** 2, tau, [k / gain for k in (-9, -3, 3, 9)])
    value = g.expectation(lambda t: np.tanh(gain * t) ** 2, tau)
    assert value == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("place", [0.0, 0.1, 0.5, 0.77, 1.234, 2.9])
def test_narrow_peaks_are_seen_anywhere(place):
    """A peak of width 1/100, whose neighbourhood is flat."""
    width = 0.01
    value = g.expectation(lambda t: np.exp(-0.5 * ((t - place) / width) ** 2))
    variance = 1 + width**2
    exact = width / math.sqrt(variance) * math.exp(-0.5 * place**2 / variance)
    assert value == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize("width", [1e-2, 1e-5])
def test_a_declared_kink_points_at_a_steep_place(width):
    peak = lambda t: np.exp(-0.5 * ((t - 0.7) / width) ** 2)  # noqa: E731
    value = g.expectation(peak, 1.0, (0.7,))
    variance = 1 + width**2
    exact = width / math.sqrt(variance) * math.exp(-0.245 / variance)
    assert value == pytest.approx(exact, rel=1e-13)
    pair = g.bivariate(peak, np.cos, 1.0, 1.0, 0.5, (0.7,))
    swapped = g.bivariate(np.cos, peak, 1.0, 1.0, 0.5, (), (0.7,))
    assert pair == pytest.approx(swapped, rel=1e-12)


@pytest.mark.parametrize("tau", [0.1, 1.0, 30.0])
def test_smooth_functions_against_high_precision(tau):
    cosine = g.expectation(np.cos, tau)
    assert cosine == pytest.approx(math.exp(-(tau**2) / 2), abs=2e-15)
    soft = g.expectation(lambda t: np.logaddexp(0.0, t), tau)
    exact = reference(lambda t: mpmath.log1p(mpmath.exp(t)), tau, [-20, -5, 5, 20])
    assert soft == pytest.approx(exact, rel=1e-14)


def test_zero_scale_gives_the_value_at_zero():
    assert g.expectation(lambda t: np.cos(t) + 2.0, 0.0) == 3.0


def test_several_functions_at_one_time():
    together = g.expectations(lambda t: np.stack([relu(t), np.cos(t)]), 1.3, (0.0,))
    apart = [g.expectation(relu, 1.3, (0.0,)), g.expectation(np.cos, 1.3)]
    np.testing.assert_allclose(together, apart, rtol=1e-14)


def test_rounding_noise_is_accepted():
    value = g.expectation(lambda t: 1.0 - np.cos(t), 0.01)
    assert value == pytest.approx(-math.expm1(-0.00005), rel=1e-11)


@pytest.mark.parametrize(
    "kinks", [(1e-9,), (0.0, 1e-14), (-5.0, 1e9), tuple(np.linspace(-4, 4, 33))]
)
def test_harmless_kinks_change_nothing(kinks):
    assert g.expectation(np.tanh, 1.0, kinks) == pytest.approx(0.0, abs=1e-16)
    value = g.expectation(lambda t: np.tanh(t) ** 2, 1.0, kinks)
    assert value == pytest.approx(0.3942944903978412, rel=1e-14)


@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda t: 1.0, ValueError, "vectorised"),
        (lambda t: t[:-1], ValueError, "vectorised"),
        (lambda t: t + 1j, TypeError, "real numbers"),
        (lambda t: np.where(t > 1.0, np.nan, t), ValueError, "not finite at t = "),
        (lambda t: np.where(t > 1.0, np.inf, t), ValueError, "not finite at t = "),
        (lambda t: np.exp(t * t), AccuracyError, "grows too fast"),
        (lambda t: np.sin(1e9 * t), AccuracyError, "did not settle"),
    ],
)
def test_bad_functions_are_named(f, error, text):
    with pytest.raises(error, match=text):
        g.expectation(f)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="tau must not be negative, got -1"):
        g.expectation(np.cos, -1.0)
    with pytest.raises(ValueError, match="tau must be positive"):
        g.stein_moments(np.cos, 0.0)
    with pytest.raises(TypeError, match="kinks"):
        g.expectation(np.cos, 1.0, 0.0)
    with pytest.raises(ValueError, match="variance must not be negative, got -1"):
        g.hermite_coefficients(np.cos, -1.0, 3)
    with pytest.raises(TypeError, match="degree must be an integer"):
        g.hermite_coefficients(np.cos, 1.0, 3.0)


@pytest.mark.parametrize("tau", TAUS)
def test_stein_moments_of_relu_and_a_cubic(tau):
    m = g.stein_moments(relu, tau, (0.0,))
    density = 1 / math.sqrt(2 * math.pi)
    exact = (tau * density, tau**2 / 2, 0.5, density / tau, 1.0)
    np.testing.assert_allclose((m.mean, m.square, m.d1, m.d2, m.square_d2), exact, rtol=1e-14)
    m = g.stein_moments(lambda t: t**3 + t**2, tau)
    # Rounding is relative to the sizes of the integrands, not to what is left of them.
    size = tau**2 + tau**3
    for value, exact, scale in (
        (m.mean, tau**2, size),
        (m.square, 15 * tau**6 + 3 * tau**4, size**2),
        (m.d1, 3 * tau**2, size / tau),
        (m.d2, 2.0, size / tau**2),
        (m.square_d2, 90 * tau**4 + 12 * tau**2, (size / tau) ** 2),
    ):
        assert abs(value - exact) < 1e-13 * scale


def test_stein_moments_agree_with_derivatives():
    m = g.stein_moments(np.sin, 0.7)
    assert m.d1 == pytest.approx(g.expectation(np.cos, 0.7), rel=1e-14)
    assert m.d2 == pytest.approx(0.0, abs=1e-14)
    assert m.square_d2 == pytest.approx(g.expectation(lambda t: 2 * np.cos(2 * t), 0.7), rel=1e-13)


def test_hermite_functions_are_orthonormal():
    x, w = np.polynomial.hermite_e.hermegauss(80)
    table = g.hermite_functions(x, 60)
    gram = (table * (w * np.exp(0.5 * x * x) / math.sqrt(2 * math.pi))) @ table.T
    np.testing.assert_allclose(gram, np.eye(61), atol=1e-11)


@pytest.mark.parametrize("variance", [1e-6, 0.3, 1.0, 40.0])
def test_hermite_coefficients_of_sine(variance):
    tau, k = math.sqrt(variance), np.arange(151)
    with np.errstate(under="ignore"):
        size = np.exp(-variance / 2 + k * math.log(tau) - 0.5 * special.gammaln(k + 1))
    exact = np.where(k % 2 == 1, size * np.where(k % 4 == 1, 1.0, -1.0), 0.0)
    np.testing.assert_allclose(g.hermite_coefficients(np.sin, variance, 150), exact, atol=3e-15)


def test_hermite_coefficients_of_relu_to_high_degree():
    degree, variance = 200, 2.5
    c = g.hermite_coefficients(relu, variance, degree, (0.0,))
    j = np.arange(1, degree // 2 + 1)
    log = special.gammaln(2 * j + 1) / 2 - (j * math.log(2) + special.gammaln(j + 1))
    exact = (-1.0) ** (j + 1) * np.exp(log) / (2 * j - 1) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(c[2::2], math.sqrt(variance) * exact, atol=2e-15)
    np.testing.assert_allclose(c[3::2], 0.0, atol=2e-15)
    assert c[1] == pytest.approx(math.sqrt(variance) / 2, rel=1e-15)


def test_hermite_coefficients_shapes():
    variance = np.array([0.0, 0.5, 2.0])
    table = g.hermite_coefficients(np.cos, variance, 4)
    assert table.shape == (3, 5)
    np.testing.assert_array_equal(table[0], [1, 0, 0, 0, 0])
    np.testing.assert_array_equal(table[1], g.hermite_coefficients(np.cos, 0.5, 4))
    assert g.hermite_coefficients(np.cos, 0.5, 0).shape == (1,)


def test_parseval_ties_hermite_to_expectation():
    c = g.hermite_coefficients(np.tanh, 0.8, 120)
    square = g.expectation(lambda t: np.tanh(t) ** 2, math.sqrt(0.8))
    assert c @ c == pytest.approx(square, rel=1e-13)


@given(var_u=variances, var_v=variances, rho=correlations)
@QUICK
def test_closed_forms_against_the_generic_rule(var_u, var_v, rho):
    root = math.sqrt(var_u * var_v)
    cov = rho * root
    args = (var_u, var_v, cov)
    leak = lambda t: np.where(t > 0, t, 0.2 * t)  # noqa: E731
    dleak = lambda t: np.where(t > 0, 1.0, 0.2)  # noqa: E731
    kink = ((0.0,), (0.0,))
    assert abs(g.bivariate(relu, relu, *args, *kink) - g.relu_product(*args)) < 1e-14 * root
    assert abs(g.bivariate(step, step, *args, *kink) - g.step_product(*args)) < 1e-13
    generic = g.bivariate(leak, leak, *args, *kink)
    assert abs(generic - g.leaky_relu_product(0.2, *args)) < 1e-14 * root
    assert abs(g.bivariate(dleak, dleak, *args, *kink) - g.leaky_step_product(0.2, *args)) < 1e-13


@given(var_u=variances, var_v=variances, rho=correlations)
@QUICK
def test_erf_against_the_generic_rule(var_u, var_v, rho):
    args = (var_u, var_v, rho * math.sqrt(var_u * var_v))
    scale = math.sqrt(g.erf_product(var_u, var_u, var_u) * g.erf_product(var_v, var_v, var_v))
    assert abs(g.bivariate(special.erf, special.erf, *args) - g.erf_product(*args)) < 1e-13 * scale
    derf = lambda t: 2 / math.sqrt(math.pi) * np.exp(-t * t)  # noqa: E731
    scale = math.sqrt(g.derf_product(var_u, var_u, var_u) * g.derf_product(var_v, var_v, var_v))
    assert abs(g.bivariate(derf, derf, *args) - g.derf_product(*args)) < 1e-13 * scale


@pytest.mark.parametrize("rho", [-1.0, -0.999999, -0.4, 0.0, 0.7, 1 - 1e-9, 1.0])
def test_mixed_moments_are_exact(rho):
    var_u, var_v = 0.7, 3.0
    cov = rho * math.sqrt(var_u * var_v)
    value = g.bivariate(lambda t: t**3, lambda t: t + t**2, var_u, var_v, cov)
    assert value == pytest.approx(3 * var_u * cov, abs=1e-13)


@pytest.mark.parametrize("rho", [-0.99, 0.3, 0.9999, 1 - 1e-12])
def test_two_different_functions_with_kinks_off_centre(rho):
    """The rule must not care which of the two variables is outside."""
    f, g_ = (lambda t: np.clip(t, -0.3, 1.1)), (lambda t: np.abs(t - 0.4))
    cov = rho * math.sqrt(0.5 * 2.0)
    one = g.bivariate(f, g_, 0.5, 2.0, cov, (-0.3, 1.1), (0.4,))
    two = g.bivariate(g_, f, 2.0, 0.5, cov, (0.4,), (-0.3, 1.1))
    assert one == pytest.approx(two, rel=1e-13)


def test_against_hermite_series():
    c = g.hermite_coefficients(np.tanh, np.array([0.9, 1.4]), 160)
    for rho in (-0.8, 0.1, 0.6):
        series = float((c[0] * c[1]) @ rho ** np.arange(161))
        value = g.bivariate(np.tanh, np.tanh, 0.9, 1.4, rho * math.sqrt(0.9 * 1.4))
        assert value == pytest.approx(series, abs=1e-14)


def test_steep_pair():
    """Steep functions act as signs of their arguments when their width vanishes."""
    steep = lambda t: np.tanh(1e4 * t)  # noqa: E731
    sign = 2 / math.pi * math.asin(0.5)
    assert g.bivariate(steep, steep, 1.0, 1.0, 0.5) == pytest.approx(sign, abs=2e-7)


def test_zero_variances():
    shift = lambda t: np.cos(t) + relu(t)  # noqa: E731
    mean = g.expectation(shift, 2.0, (0.0,))
    assert g.bivariate(shift, shift, 0.0, 4.0, 0.0, (0.0,), (0.0,)) == pytest.approx(
        mean, rel=1e-15
    )
    assert g.bivariate(shift, shift, 4.0, 0.0, 0.0, (0.0,), (0.0,)) == pytest.approx(
        mean, rel=1e-15
    )
    assert g.bivariate(shift, shift, 0.0, 0.0, 0.0) == 1.0
    for product in (g.relu_product, g.step_product, g.erf_product):
        np.testing.assert_array_equal(product([0.0, 0.0, 1.0], [0.0, 2.0, 0.0], 0.0), 0.0)


@pytest.mark.parametrize(
    "function",
    [
        lambda *a: g.bivariate(relu, relu, *a),
        g.relu_product,
        g.step_product,
        g.erf_product,
        g.derf_product,
        lambda *a: g.leaky_relu_product(0.1, *a),
        lambda *a: g.leaky_step_product(0.1, *a),
    ],
)
@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((1.0, 1.0, 1.0 + 1e-9), "cov must satisfy"),
        ((4.0, 1.0, -2.1), "cov must satisfy"),
        ((0.0, 1.0, 0.1), "cov must satisfy"),
        ((-1.0, 1.0, 0.0), "var_u must not be negative"),
        ((1.0, -1.0, 0.0), "var_v must not be negative"),
        ((1.0, 1.0, math.nan), "cov must be finite"),
        ((math.inf, 1.0, 0.0), "var_u must be finite"),
    ],
)
def test_impossible_covariances_are_refused(function, args, text):
    with pytest.raises(ValueError, match=text):
        function(*args)


def test_rounding_of_the_covariance_is_forgiven():
    assert g.bivariate(relu, relu, 1.0, 1.0, 1.0 + 1e-14, (0.0,), (0.0,)) == pytest.approx(0.5)
    assert g.step_product(1.0, 1.0, 1.0 + 1e-14) == 0.5


@pytest.mark.parametrize("exponent", [-140, -20, 0, 20, 140])
def test_closed_forms_near_perfect_correlation(exponent):
    """cos = +-(1 - 2^-k), exact in binary, at very different scales."""
    scale = 2.0**exponent
    for k in (10, 20, 30, 40, 50):
        gap = mpmath.mpf(2) ** -k
        for sign in (1, -1):
            with mpmath.workdps(60):
                cosine = sign * (1 - gap)
                theta = mpmath.acos(cosine)
                bracket = mpmath.sin(theta) + (mpmath.pi - theta) * cosine
                exact_relu = float(bracket / (2 * mpmath.pi))
                exact_step = float((mpmath.pi - theta) / (2 * mpmath.pi))
            cov = float(cosine) * scale
            relative = float(g.relu_product(scale, scale, cov) / scale)
            assert relative == pytest.approx(exact_relu, rel=1e-14)
            assert float(g.step_product(scale, scale, cov)) == pytest.approx(exact_step, rel=1e-15)


@given(a=variances, b=variances, rho=correlations)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_determinant_is_exact(a, b, rho):
    from fractions import Fraction

    cov = rho * math.sqrt(a) * math.sqrt(b) * (1 - 1e-15)
    exact = Fraction(a) * Fraction(b) - Fraction(cov) ** 2
    value = float(g.determinant(a, b, cov))
    assert value == pytest.approx(max(float(exact), 0.0), rel=1e-15, abs=0.0)


def test_closed_forms_broadcast():
    u, v = np.array([[1.0], [2.0]]), np.array([1.0, 3.0, 5.0])
    assert g.relu_product(u, v, 0.5).shape == (2, 3)
    assert g.erf_product(u, v, 0.5).shape == (2, 3)
    assert float(g.relu_product(2.0, 5.0, 0.5)) == g.relu_product(u, v, 0.5)[1, 2]


@given(slope=st.floats(-2.0, 2.0), rho=correlations)
@QUICK
def test_leaky_derivative_is_the_slope_of_the_kernel(slope, rho):
    """d/dcov E f(u) f(v) = E f'(u) f'(v) (Price)."""
    rho = 0.99 * rho
    h = 1e-5
    above, below = (g.leaky_relu_product(slope, 1.0, 1.0, rho + s * h) for s in (1, -1))
    slope_of_kernel = float(above - below) / (2 * h)
    assert slope_of_kernel == pytest.approx(
        float(g.leaky_step_product(slope, 1.0, 1.0, rho)), abs=1e-7
    )


def test_variance_profile_matches_expectation():
    taus = np.array([0.1, 1.0, 9.0])
    f = lambda t: np.clip(t, -1.0, 1.0) + 0.5  # noqa: E731
    mean, square = g.variance_profile(f, taus, (-1.0, 1.0))
    for i, tau in enumerate(taus):
        assert mean[i] == pytest.approx(g.expectation(f, tau, (-1.0, 1.0)), rel=1e-6)
        exact = g.expectation(lambda t: f(t) ** 2, tau, (-1.0, 1.0))
        assert square[i] == pytest.approx(exact, rel=1e-6)
