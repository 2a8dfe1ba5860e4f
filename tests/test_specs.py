"""Network specifications: fixed points, well-posedness, centring, and refusals."""

import dataclasses
import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicitnn import activations as act
from implicitnn import equivalents, gaussian, kernels
from implicitnn._gaussian.bends import cuts
from implicitnn.activations import Activation
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ, ENN

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
PI = math.pi
SHIPPED = [
    act.relu,
    act.tanh,
    act.swish,
    act.elu,
    act.gelu,
    act.linear,
    act.leaky_relu(0.01),
    act.hard_tanh(0.8, 1.2),
]


def residual(deq):
    """The fixed-point equation, from its definition."""
    square = gaussian.expectation(lambda t: deq.phi(t) ** 2, deq.tau, deq.phi.kinks)
    right = deq.sigma_a2 * square + deq.sigma_b2 * deq.tau0**2 + deq.sigma_c2
    return abs(deq.tau**2 - right) / right


@pytest.mark.parametrize(
    ("a", "tau", "gamma2"),
    [
        (act.relu, 0.926566, 0.292624),
        (act.tanh, 0.934872, 0.369925),
        (act.swish, 0.923321, 0.262611),
        (act.leaky_relu(0.01), 0.926886, 0.295590),
        (act.elu, 0.956393, 0.573436),
    ],
)
def test_known_scalars(a, tau, gamma2):
    deq = DEQ(a, 0.2)
    assert deq.tau == pytest.approx(tau, abs=5e-7)
    assert deq.gamma2 == pytest.approx(gamma2, abs=5e-7)


@given(
    sigma_a2=st.floats(0.0, 0.99),
    tau0=st.floats(-4, 4).map(lambda e: 10.0**e),
    slope=st.floats(-1.0, 0.99),
)
@QUICK
def test_leaky_relu_closed_form(sigma_a2, tau0, slope):
    deq = DEQ(act.leaky_relu(slope), sigma_a2, tau0=tau0)
    share = (1 + slope**2) / 2 - (1 - slope) ** 2 / (2 * PI)
    tau2 = (1 - sigma_a2) * tau0**2 / (1 - sigma_a2 * share)
    assert deq.tau**2 == pytest.approx(tau2, rel=4e-15)
    assert deq.gamma2 == pytest.approx(share * tau2, rel=4e-15)
    assert deq.offset == pytest.approx((1 - slope) * deq.tau / math.sqrt(2 * PI), rel=4e-15)
    assert deq.contraction.covariance == pytest.approx(sigma_a2 * (1 + slope**2) / 2, rel=1e-14)
    assert deq.contraction.variance == pytest.approx(sigma_a2 * share, rel=1e-14, abs=1e-15)


def test_relu_uncentred_with_bias_closed_form():
    deq = DEQ(act.relu, 0.6, 1.5, 2.0, sigma_c2=0.3, centred=False)
    assert deq.tau**2 == pytest.approx((1.5 * 4 + 0.3) / (1 - 0.3), rel=1e-15)
    assert deq.offset == 0.0
    np.testing.assert_array_equal(deq.phi(np.array([-1.0, 2.0])), [0.0, 2.0])


def test_quadratic_closed_form():
    q, r, a = 0.3, 0.8, 0.4
    deq = DEQ(act.quadratic(q, r), a)
    c2, c1, c0 = 2 * q * q * a, a * r * r - 1, 1 - a
    smallest = (-c1 - math.sqrt(c1 * c1 - 4 * c2 * c0)) / (2 * c2)
    assert deq.tau**2 == pytest.approx(smallest, rel=1e-14)
    assert deq.offset == pytest.approx(q * smallest, rel=1e-14)


def test_erf_closed_form():
    deq = DEQ(act.erf, 0.7, tau0=1.3)
    v = deq.tau**2
    assert v == pytest.approx(0.7 * float(gaussian.erf_product(v, v, v)) + 0.3 * 1.69, rel=1e-15)
    slope = float(gaussian.derf_product(v, v, v))
    assert deq.contraction.covariance == pytest.approx(0.7 * slope, rel=1e-13)


@pytest.mark.parametrize("a", SHIPPED, ids=lambda a: a.name)
@pytest.mark.parametrize("sigma_a2", [0.0, 0.02, 0.2, 0.9, 0.999])
@pytest.mark.parametrize("tau0", [1e-3, 1.0, 50.0])
def test_fixed_point_and_centring_hold_to_rounding(a, sigma_a2, tau0):
    deq = DEQ(a, sigma_a2, tau0=tau0)
    assert residual(deq) < 4e-15
    mean = gaussian.expectation(deq.phi, deq.tau, deq.phi.kinks)
    assert abs(mean) < 1e-14 * math.sqrt(deq.gamma2)
    assert 0 <= deq.contraction.covariance < 1
    assert abs(deq.contraction.variance) < 1


@pytest.mark.parametrize("a", [act.tanh, act.swish, act.elu], ids=lambda a: a.name)
def test_variance_rate_is_the_slope_of_the_variance_map(a):
    """The rate with the offset held fixed: d/dv sigma_a2 E (f(sqrt(v) xi) - c)^2."""
    deq = DEQ(a, 0.5)
    h = 1e-5 * deq.tau**2
    above, below = (
        gaussian.expectation(lambda t: deq.phi(t) ** 2, math.sqrt(deq.tau**2 + s * h), a.kinks)
        for s in (1, -1)
    )
    assert 0.5 * (above - below) / (2 * h) == pytest.approx(deq.contraction.variance, rel=1e-8)


def test_fixed_point_is_where_the_iteration_from_zero_ends():
    deq = DEQ(act.swish, 0.8, tau0=1.5)
    v = 0.0
    for _ in range(2000):
        tau = math.sqrt(v)
        mean, square = gaussian.expectations(
            lambda t: np.stack([act.swish(t), act.swish(t) ** 2]), tau
        )
        v = 0.8 * (square - mean**2) + deq.sigma_b2 * 1.5**2
        if abs(v - deq.tau**2) < 1e-14:
            break
    assert v == pytest.approx(deq.tau**2, rel=1e-13)


def test_steep_activation_of_the_reader():
    steep = Activation(
        "steep", lambda t: np.tanh(20 * t), lambda t: 20 * (1 - np.tanh(20 * t) ** 2)
    )
    deq = DEQ(steep, 0.01)
    assert residual(deq) < 4e-15
    with pytest.raises(NotWellPosedError, match=r"sigma_a2 E\[phi'\(tau xi\)\^2\] < 1 fails"):
        DEQ(steep, 0.9)


def limit_in(error):
    return float(re.search(r"largest sigma_a2 that works is ([0-9.e-]+)", str(error.value))[1])


@pytest.mark.parametrize(
    ("make", "limit", "text"),
    [
        (lambda a: DEQ(act.relu, a, 0.8), 2.0, r"sigma_a2 E\[phi'\(tau xi\)\^2\] < 1 fails"),
        (lambda a: DEQ(act.linear, a, 0.5), 1.0, "has no solution"),
        (lambda a: DEQ(act.relu, a, 0.5, centred=False), 2.0, "has no solution"),
        (lambda a: DEQ(act.quadratic(1.0, 1.0), a), 1 / 9, "has no solution"),
        (lambda a: DEQ(act.quadratic(0.0, 2.0), a), 0.25, "has no solution"),
    ],
)
def test_ill_posed_networks_name_the_largest_sigma_a2(make, limit, text):
    with pytest.raises(NotWellPosedError, match=text) as error:
        make(min(0.9999, 1.3 * limit) if limit < 1 else 1.3 * limit)
    largest = limit_in(error)
    assert largest == pytest.approx(limit, rel=2e-5)
    assert largest <= limit
    make(largest)
    with pytest.raises(NotWellPosedError):
        make(largest * 1.0001)


def test_the_limit_keeps_the_convention_of_the_caller():
    sharp = act.quadratic(0.5, 1.2)
    with pytest.raises(NotWellPosedError, match=r"with sigma_b2 = 1 - sigma_a2") as default:
        DEQ(sharp, 0.6)
    with pytest.raises(NotWellPosedError, match=r"with sigma_b2 = 0\.4") as fixed:
        DEQ(sharp, 0.6, 0.4)
    assert limit_in(default) != limit_in(fixed)
    DEQ(sharp, limit_in(default))
    DEQ(sharp, limit_in(fixed), 0.4)
    with pytest.raises(NotWellPosedError):
        DEQ(sharp, limit_in(default) + 1e-4)
    with pytest.raises(NotWellPosedError):
        DEQ(sharp, limit_in(fixed) + 1e-4, 0.4)


def test_the_smallest_of_two_fixed_points_is_taken():
    """Just below the limit of a quadratic two solutions lie close together."""
    deq = DEQ(act.quadratic(1.0, 1.0), 0.1111)
    disc = math.sqrt((1 - 0.1111) ** 2 - 8 * 0.1111 * (1 - 0.1111))
    smaller = ((1 - 0.1111) - disc) / (4 * 0.1111)
    assert deq.tau**2 == pytest.approx(smaller, rel=1e-11)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "text"),
    [
        ((act.relu, 1.0), {}, ValueError, r"sigma_a2 must be below 1 .* got sigma_a2 = 1\.0"),
        ((act.relu, -0.1), {}, ValueError, r"sigma_a2 must not be negative, got -0\.1"),
        ((act.relu, math.nan), {}, ValueError, "sigma_a2 must be finite, got nan"),
        ((act.relu, 0.2j), {}, TypeError, "sigma_a2 must be a real number"),
        ((act.relu, True), {}, TypeError, "sigma_a2 must be a real number"),
        ((act.relu, 0.2, 0.0), {}, ValueError, "sigma_b2 must be positive, got 0"),
        ((act.relu, 0.2, "1"), {}, TypeError, "sigma_b2 must be a real number"),
        ((act.relu, 0.2, 0.8, 0.0), {}, ValueError, "tau0 must be positive, got 0"),
        ((act.relu, 0.2, 0.8, math.inf), {}, ValueError, "tau0 must be finite, got inf"),
        ((act.relu, 0.2), {"sigma_c2": -1.0}, ValueError, "sigma_c2 must not be negative, got -1"),
        ((act.relu, 0.2), {"centred": 1}, TypeError, "centred must be True or False, got 1"),
        (("relu", 0.2), {}, TypeError, "activation must be an Activation, got 'relu'"),
        ((np.tanh, 0.2), {}, TypeError, "activation must be an Activation"),
    ],
)
def test_bad_arguments_are_named(args, kwargs, error, text):
    with pytest.raises(error, match=text):
        DEQ(*args, **kwargs)


def test_unknown_keywords_are_refused():
    with pytest.raises(TypeError, match="sigma_a"):
        DEQ(act.relu, sigma_a=0.2)


def test_at_keeps_everything_but_the_scale():
    deq = DEQ(act.tanh, 0.3, 0.9, 1.0, sigma_c2=0.1, centred=False)
    moved = deq.at(2.0)
    assert moved == DEQ(act.tanh, 0.3, 0.9, 2.0, sigma_c2=0.1, centred=False)
    assert deq.at(1.0) == deq
    assert deq.tau0 == 1.0


def test_default_sigma_b2_is_filled_and_not_repeated():
    deq = DEQ(act.relu, 0.3)
    assert deq.sigma_b2 == 0.7
    assert repr(deq) == "DEQ(relu, sigma_a2=0.3, tau0=1.0)"
    assert repr(deq.at(0.5)) == "DEQ(relu, sigma_a2=0.3, tau0=0.5)"
    full = DEQ(act.relu, 0.3, 0.7, sigma_c2=0.1, centred=False)
    assert repr(full) == (
        "DEQ(relu, sigma_a2=0.3, sigma_b2=0.7, tau0=1.0, sigma_c2=0.1, centred=False)"
    )


@given(tau0=st.floats(0.01, 100.0), factor=st.floats(0.1, 10.0))
@QUICK
def test_homogeneous_networks_scale(tau0, factor):
    one, two = DEQ(act.relu, 0.4, tau0=tau0), DEQ(act.relu, 0.4, tau0=factor * tau0)
    assert two.tau == pytest.approx(factor * one.tau, rel=1e-14)
    assert two.gamma2 == pytest.approx(factor**2 * one.gamma2, rel=1e-14)
    assert two.contraction.covariance == pytest.approx(one.contraction.covariance, rel=1e-14)


@pytest.mark.parametrize("spec", [DEQ(act.swish, 0.2), ENN((act.swish, act.hard_tanh(1.0, 0.5)))])
def test_frozen_hashable_pickleable(spec):
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.tau0 = 2.0
    copy = pickle.loads(pickle.dumps(spec))
    assert copy == spec
    assert hash(copy) == hash(spec)
    assert dataclasses.replace(spec, tau0=2.0) == spec.at(2.0)
    assert spec != spec.at(2.0)
    values = np.array([-1.0, 0.5])
    phi = spec.phi if isinstance(spec, DEQ) else spec.phis[0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(phi))(values), phi(values))


def test_centred_activation():
    phi = DEQ(act.relu, 0.2).phi
    t = np.array([-2.0, -0.5, 1.0])
    np.testing.assert_array_equal(phi(t), act.relu(t) - phi.offset)
    np.testing.assert_array_equal(phi.df(t), act.relu.df(t))
    assert phi.kinks == (0.0,)


def test_enn_scales():
    ratio = (PI - 1) / (2 * PI)
    net = ENN([act.relu, act.relu, act.linear], tau0=2.0)
    np.testing.assert_allclose(net.taus, 2.0 * np.sqrt([1, ratio, ratio**2, ratio**2]), rtol=1e-14)
    assert net.offsets[0] == pytest.approx(2.0 / math.sqrt(2 * PI), rel=1e-14)
    assert net.offsets[2] == pytest.approx(0.0, abs=1e-15)
    assert net.layers == (act.relu, act.relu, act.linear)
    for tau, phi in zip(net.taus, net.phis, strict=False):
        assert gaussian.expectation(phi, tau, phi.kinks) == pytest.approx(0.0, abs=1e-15)


def test_enn_quadratic_closed_form():
    q, r, tau0 = 0.4, 0.7, 1.3
    net = ENN((act.quadratic(q, r),), tau0)
    assert net.taus[1] ** 2 == pytest.approx(2 * q**2 * tau0**4 + r**2 * tau0**2, rel=1e-14)
    assert net.offsets[0] == pytest.approx(q * tau0**2, rel=1e-14)


def test_enn_hard_tanh_closed_form():
    a, c, tau = 0.764297, 1.196485, 1.0
    e = math.erf(c / (math.sqrt(2) * tau))
    tail = c * tau * math.sqrt(2 / PI) * math.exp(-(c**2) / (2 * tau**2))
    square = a**2 * (tau**2 * e + c**2 * (1 - e) - tail)
    assert ENN((act.hard_tanh(a, c),)).taus[1] ** 2 == pytest.approx(square, rel=1e-14)


def test_enn_uncentred():
    net = ENN((act.relu, act.relu), centred=False)
    np.testing.assert_allclose(net.taus, np.sqrt([1, 0.5, 0.25]), rtol=1e-15)
    assert net.offsets == (0.0, 0.0)
    assert net.at(2.0) == ENN((act.relu, act.relu), 2.0, centred=False)
    assert repr(net) == "ENN((relu, relu,), tau0=1.0, centred=False)"


@pytest.mark.parametrize(
    ("layers", "tau0", "error", "text"),
    [
        (act.relu, 1.0, TypeError, r"layers must be a sequence, write \(relu,\) for one layer"),
        ("relu", 1.0, TypeError, r"layers\[0\] must be an Activation, got 'r'"),
        (3, 1.0, TypeError, "layers must be a sequence of Activation, got 3"),
        ((), 1.0, ValueError, "layers must not be empty"),
        ((act.relu, np.tanh), 1.0, TypeError, r"layers\[1\] must be an Activation"),
        ((act.relu,), -1.0, ValueError, "tau0 must be positive, got -1"),
        ((act.relu, act.quadratic(0.0, 0.0)), 1.0, ValueError, r"layer 2 .* has no output"),
    ],
)
def test_enn_bad_arguments_are_named(layers, tau0, error, text):
    with pytest.raises(error, match=text):
        ENN(layers, tau0)


CONSTANT = Activation("three", lambda t: np.full_like(t, 3.0), lambda t: np.zeros_like(t))


@pytest.mark.parametrize("a", [act.linear, act.leaky_relu(1.0), act.tanh, act.erf])
@pytest.mark.parametrize("tau0", [0.3, 1.0, 1.7, 3.0, 1e10, 1e-10])
def test_the_offset_of_an_odd_function_is_exactly_zero(a, tau0):
    assert DEQ(a, 0.2, tau0=tau0).offset == 0.0
    assert ENN((act.relu, a), tau0).offsets[1] == 0.0


def test_a_small_offset_that_is_no_rounding_is_kept():
    nearly = act.leaky_relu(1.0 - 1e-12)
    deq = DEQ(nearly, 0.2)
    assert deq.offset == pytest.approx(1e-12 * deq.tau / math.sqrt(2 * PI), rel=1e-3)


@pytest.mark.parametrize("a", [act.quadratic(0.0, 0.0), act.hard_tanh(0.0, 1.0), CONSTANT])
def test_an_activation_that_vanishes_once_centred_is_refused(a):
    with pytest.raises(ValueError, match=rf"activation {re.escape(a.name)} has no output"):
        DEQ(a, 0.2)
    with pytest.raises(ValueError, match=rf"layer 2 \({re.escape(a.name)}\) has no output"):
        ENN((act.relu, a))


def test_a_constant_is_allowed_uncentred():
    assert DEQ(CONSTANT, 0.2, centred=False).gamma2 == pytest.approx(9.0, rel=1e-14)


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"tau0": 1e300}, r"tau0 must lie between 1e-50 and 1e\+50, got 1e\+300"),
        ({"tau0": 1e-300}, r"tau0 must lie between 1e-50 and 1e\+50, got 1e-300"),
        ({"tau0": 10**400}, r"tau0 must be below 1\.8e308 in size"),
        ({"tau0": math.nan}, "tau0 must be finite, got nan"),
        ({"sigma_a2": 1e101, "sigma_b2": 1.0}, r"sigma_a2 must be at most 1e\+100"),
        ({"sigma_b2": 1e101}, r"sigma_b2 must be at most 1e\+100"),
        ({"sigma_b2": 1e-101}, r"sigma_b2 must be at least 1e-100, got 1e-101"),
        ({"sigma_c2": 1e101}, r"sigma_c2 must be at most 1e\+100"),
        ({"tau0": 1e-50}, r"sigma_b2 tau0\^2 \+ sigma_c2 must lie between 1e-100 and 1e\+100"),
    ],
)
def test_numbers_out_of_range_are_named(kwargs, text):
    with pytest.raises(ValueError, match=text):
        DEQ(act.relu, **{"sigma_a2": 0.2, **kwargs})


@pytest.mark.parametrize("number", [np.float32(2), np.int8(2), np.longdouble(2), np.array(2.0), 2])
def test_numbers_of_numpy_are_plain_numbers(number):
    assert DEQ(act.relu, 0.2, tau0=number) == DEQ(act.relu, 0.2, tau0=2.0)
    assert type(DEQ(act.relu, 0.2, tau0=number).tau0) is float


@pytest.mark.parametrize("scale", [1e-49, 1e-20, 1e20, 1e49])
@pytest.mark.parametrize("a", SHIPPED, ids=lambda a: a.name)
def test_the_whole_range_of_scales_works_in_a_strict_numpy(a, scale):
    with np.errstate(all="raise"):
        deq, enn = DEQ(a, 0.2, tau0=scale), ENN((a, a), scale)
    assert math.isfinite(deq.tau) and deq.gamma2 > 0
    assert all(map(math.isfinite, (*enn.taus, *enn.offsets)))


def test_a_network_that_outgrows_the_range_names_the_layer():
    with pytest.raises(ValueError, match=r"leaves layer 9 \(quadratic.* got 8\.187737"):
        ENN((act.quadratic(1.0, 0.0),) * 20)
    with pytest.raises(ValueError, match=r"layer 8 \(quadratic\(0\.3, 0\.0\)\) must lie between"):
        ENN((act.quadratic(0.3, 0.0),) * 20)
    with pytest.raises(ValueError, match=r"layer 1 \(hard_tanh\(1e\+300, 1\.0\)\) exceeds 1e\+150"):
        ENN((act.hard_tanh(1e300, 1.0),))
    with pytest.raises(
        ValueError, match=r"activation hard_tanh\(1e\+300, 1\.0\): f exceeds 1e\+150"
    ):
        DEQ(act.hard_tanh(1e300, 1.0), 0.2)


def test_growth_beyond_every_expectation_is_explained():
    sinh = Activation("sinh", np.sinh, np.cosh)
    with pytest.raises(NotWellPosedError, match=r"no solution below the scale at which f\^2") as e:
        DEQ(sinh, 0.2)
    assert DEQ(sinh, limit_in(e)).tau < 3.0
    with pytest.raises(NotWellPosedError, match="no sigma_a2 above 1e-100 works"):
        DEQ(act.quadratic(1e60, 0.0), 0.2)
    with pytest.raises(NotWellPosedError, match=r"largest sigma_a2 that works is 1\.99999"):
        DEQ(act.relu, 1e100, 1.0)


@pytest.mark.parametrize("a", [act.linear, act.leaky_relu(1.0)], ids=lambda a: a.name)
@pytest.mark.parametrize("tau0", [0.3, 1.0, 3.0])
def test_a_sample_at_zero_has_a_zero_row_in_linear_networks(a, tau0):
    X = np.array([[0.0, 0.0], [1.0, 2.0]])
    # tau^2 = 0.2 tau^2 + 0.8 |x|^2, so the kernel of the linear network is X X^T.
    np.testing.assert_allclose(kernels.ck(DEQ(a, 0.2, tau0=tau0), X), X @ X.T, atol=1e-13)


def bumped(place, width, height):
    """The tanh with a Gaussian bump."""

    def bump(t):
        return height * np.exp(-(((t - place) / width) ** 2))

    return Activation(
        "bumped",
        lambda t: np.tanh(t) + bump(t),
        lambda t: act.tanh.df(t) - 2 * (t - place) / width**2 * bump(t),
    )


def bumped_moments(place, width, height, tau):
    """E f and E f^2, the bump in closed form and its product with tanh by its own expansion."""

    def mass(w):
        total = w**2 + 2 * tau**2
        return w / math.sqrt(total) * math.exp(-(place**2) / total)

    mean = height * mass(width)
    square = gaussian.expectation(lambda t: np.tanh(t) ** 2, tau)
    narrow = width / math.sqrt(2)
    return mean, square + height**2 * mass(narrow) + 2 * mean * math.tanh(place)


@pytest.mark.parametrize(
    ("place", "tau0"), [(1.37, 1.0), (-2.2, 1.0), (5.3, 3.0), (30.0, 12.0), (5.3, 60.0)]
)
def test_narrow_features_of_an_activation_enter_the_scalars(place, tau0):
    width, height = (2e-3 if abs(place) < 21 else 0.1), 0.5
    spec = DEQ(bumped(place, width, height), 1e-4, 1.0, tau0)
    mean, square = bumped_moments(place, width, height, spec.tau)
    # tanh is replaced by its value at the bump: an error of width^2 relative to the bump, and
    # of 2 width^2 place / tau^2 for the density, both of the order of 1e-5 at most
    assert spec.offset == pytest.approx(mean, rel=1e-9)
    assert spec.gamma2 == pytest.approx(square - mean**2, abs=2e-4 * mean)
    assert residual_cut(spec) < 1e-12
    c = equivalents.coefficients(spec)
    assert c.gamma2 == spec.gamma2
    slope = gaussian.expectation(
        lambda t: spec.phi.df(t) ** 2, spec.tau, [place - width, place, place + width]
    )
    assert spec.contraction.covariance == pytest.approx(1e-4 * slope, rel=1e-9)
    assert ENN((spec.activation,), spec.tau).offsets[0] == pytest.approx(mean, rel=1e-9)


def residual_cut(deq):
    right = deq.sigma_a2 * deq.gamma2 + deq.sigma_b2 * deq.tau0**2
    return abs(deq.tau**2 - right) / right


def test_shipped_activations_are_not_scanned():
    for a in SHIPPED:
        for tau in (1e-3, 1.0, 1e3):
            assert cuts(a, tau) == a.kinks
    tanh = Activation("tanh", np.tanh, act.tanh.df)
    assert cuts(tanh, 1.0) == ()
