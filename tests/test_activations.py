"""Activations: values, derivatives, and the checks of a reader's own."""

import math
import pickle
import re

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from implicitnn import activations as act
from implicitnn._gaussian.activation_checks import check
from implicitnn.activations import Activation
from implicitnn.errors import InvalidActivationError

QUICK = settings(max_examples=30, deadline=None, derandomize=True)
SHIPPED = [
    act.relu,
    act.tanh,
    act.swish,
    act.elu,
    act.erf,
    act.gelu,
    act.linear,
    act.leaky_relu(0.01),
    act.leaky_relu(-1.0),
    act.leaky_relu(1.0),
    act.hard_tanh(0.764297, 1.196485),
    act.hard_tanh(-1.0, 1e-4),
    act.hard_tanh(3.0, 200.0),
    act.hard_tanh(1e9, 1e-9),
    act.hard_tanh(1e-6, 1e8),
    act.quadratic(0.1, 1.0),
    act.quadratic(-3.0, 0.0),
    act.quadratic(1e-8, 1e8),
]
named = pytest.mark.parametrize("a", SHIPPED, ids=lambda a: a.name)


def sigmoid(t):
    return 1 / (1 + mpmath.exp(-t))


EXACT = {
    "tanh": mpmath.tanh,
    "swish": lambda t: t * sigmoid(t),
    "elu": lambda t: t if t > 0 else mpmath.expm1(t),
    "erf": mpmath.erf,
    "gelu": lambda t: t * mpmath.ncdf(t),
}


def drelu(t):
    return np.where(t > 0, 1.0, 0.0)


def dtanh(t):
    return 1.0 - np.tanh(t) ** 2


@named
def test_shipped_pass_the_checks(a):
    check(a.name, a.f, a.df, a.kinks, a.homogeneous)


@pytest.mark.parametrize("name", EXACT)
def test_values_and_derivatives_against_high_precision(name):
    a, exact = act.get(name), EXACT[name]
    with mpmath.workdps(50):
        for t in (-40.0, -9.5, -1.3, -1e-3, -1e-9, 1e-9, 0.2, 2.0, 11.0, 40.0):
            value, slope = float(exact(mpmath.mpf(t))), float(mpmath.diff(exact, mpmath.mpf(t)))
            assert a(np.float64(t)) == pytest.approx(value, rel=1e-14, abs=1e-300)
            assert a.df(np.float64(t)) == pytest.approx(slope, rel=1e-13, abs=1e-40)


@named
def test_huge_arguments_are_silent(a):
    t = np.array([-np.inf, -1e308, -1e200, -1e5, -800.0, 0.0, 800.0, 1e5, 1e200, 1e308, np.inf])
    finite = t[1:-1]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        values, slopes = a(finite), a.df(finite)
    assert not np.isnan(values).any()
    assert not np.isnan(slopes).any()
    if "(" not in a.name:
        assert np.abs(slopes).max() < 2.0
        assert np.abs(a.df(t[[0, -1]])).max() <= 1.0


@named
def test_shapes_and_integers(a):
    t = np.arange(-6, 6).reshape(3, 4)
    assert a(t).shape == (3, 4)
    assert a.df(t).shape == (3, 4)
    np.testing.assert_array_equal(a(t), a(t.astype(float)))
    assert np.shape(a(np.float64(0.5))) == ()


@named
def test_pickle_equality_and_hash(a):
    other = pickle.loads(pickle.dumps(a))
    assert other == a
    assert hash(other) == hash(a)
    assert {a: 1}[other] == 1


def test_families_are_equal_by_parameters():
    assert act.leaky_relu(0.1) == act.leaky_relu(0.1)
    assert act.leaky_relu(0.1) != act.leaky_relu(0.2)
    assert act.hard_tanh(1, 2) == act.hard_tanh(1.0, 2.0)
    assert act.quadratic(1.0, 2.0) != act.quadratic(2.0, 1.0)
    assert act.relu != act.leaky_relu(0.0)


@given(
    slope=st.floats(-5, 5),
    a=st.floats(-5, 5),
    c=st.floats(-3, 3).map(lambda e: 10.0**e),
    q=st.floats(-5, 5),
)
@QUICK
def test_every_member_of_a_family_passes(slope, a, c, q):
    for member in (act.leaky_relu(slope), act.hard_tanh(a, c), act.quadratic(q, a)):
        check(member.name, member.f, member.df, member.kinks, member.homogeneous)
        assert act.get(member.name) == member


def test_get():
    assert act.get("relu") is act.relu
    assert act.get(" leaky_relu( 0.01 ) ") == act.leaky_relu(0.01)
    assert act.get("leaky_relu") == act.leaky_relu()
    for name in (
        "rellu",
        "leaky_relu(a)",
        "leaky_relu(1, 2)",
        "hard_tanh(1, -1)",
        "quadratic()",
        "",
    ):
        with pytest.raises(ValueError, match="activation must be one of relu, tanh"):
            act.get(name)
    with pytest.raises(TypeError, match="activation must be one of"):
        act.get(3)


def test_bad_parameters_are_named():
    with pytest.raises(ValueError, match="c must be positive, got 0"):
        act.hard_tanh(1.0, 0.0)
    with pytest.raises(ValueError, match="slope must be finite"):
        act.leaky_relu(math.inf)
    with pytest.raises(TypeError, match="q must be a real number"):
        act.quadratic("1", 0.0)


HONEST = {
    "softplus": (lambda t: np.logaddexp(0, t), special.expit, ()),
    "sharp softplus": (
        lambda t: np.logaddexp(0, 200 * t) / 200,
        lambda t: special.expit(200 * t),
        (),
    ),
    "cos": (np.cos, lambda t: -np.sin(t), ()),
    "fast cos": (lambda t: np.cos(50 * t), lambda t: -50 * np.sin(50 * t), ()),
    "abs": (np.abs, np.sign, (0.0,)),
    "shifted abs": (lambda t: np.abs(t + 0.5), lambda t: np.sign(t + 0.5), (-0.5,)),
    "cubic": (lambda t: t**3 - 3 * t, lambda t: 3 * t**2 - 3, ()),
    "softsign": (lambda t: t / (1 + np.abs(t)), lambda t: 1 / (1 + np.abs(t)) ** 2, ()),
    "relu6": (lambda t: np.clip(t, 0, 6), lambda t: np.where((t > 0) & (t < 6), 1.0, 0.0), (0, 6)),
    "numerical": (np.tanh, lambda t: (np.tanh(t + 1e-6) - np.tanh(t - 1e-6)) / 2e-6, ()),
    "zero": (lambda t: 0.0 * t, lambda t: 0.0 * t, ()),
    "idle kinks": (np.tanh, dtanh, (-1.0, 0.3, 1e6)),
    "one third": (lambda t: np.abs(t - 1 / 3), lambda t: np.sign(t - 1 / 3), (1 / 3,)),
}


@pytest.mark.parametrize("name", HONEST)
def test_no_false_alarm(name):
    f, df, kinks = HONEST[name]
    assert Activation(name, f, df, kinks).kinks == tuple(float(k) for k in kinks)


@pytest.mark.parametrize("gain", [20.0, 1e3, 1e5])
@pytest.mark.parametrize("shift", [0.0, 0.37])
def test_no_false_alarm_for_steep_tanh(gain, shift):
    f = lambda t: np.tanh(gain * (t - shift))  # noqa: E731
    Activation("steep", f, lambda t: gain * (1.0 - f(t) ** 2))


@given(place=st.floats(-20.0, 20.0), size=st.floats(-4.0, 2.0).map(lambda e: 10.0**e))
@QUICK
def test_a_missing_kink_is_found_wherever_it_is(place, size):
    f = lambda t: np.tanh(t) + size * np.abs(t - place)  # noqa: E731
    df = lambda t: dtanh(t) + size * np.sign(t - place)  # noqa: E731
    with pytest.raises(InvalidActivationError, match="df jumps near t = ") as error:
        Activation("mine", f, df)
    found = float(str(error.value).split("t = ")[1].split(",")[0])
    assert found == pytest.approx(place, rel=1e-7, abs=1e-9)
    assert Activation("mine", f, df, (place,))(0.0) == size * abs(place)


def test_a_mistyped_kink_is_found():
    with pytest.raises(
        InvalidActivationError, match=r"df jumps near t = 0\.333333333, which is not"
    ):
        Activation("mine", lambda t: np.abs(t - 1 / 3), lambda t: np.sign(t - 1 / 3), (0.333333,))


@given(factor=st.floats(-3.0, 3.0).filter(lambda x: abs(x - 1) > 1e-5))
@QUICK
def test_a_wrong_factor_is_found(factor):
    with pytest.raises(InvalidActivationError, match="df is not the derivative of f near t = "):
        Activation("mine", np.tanh, lambda t: factor * dtanh(t))


@pytest.mark.parametrize(
    ("f", "df"),
    [
        (np.tanh, lambda t: -dtanh(t)),
        (act.swish.f, special.expit),
        (act.gelu.f, special.ndtr),
        (np.cos, np.sin),
        (np.tanh, lambda t: dtanh(t) + 0.1 * np.exp(-1e4 * (t - 5) ** 2)),
        (lambda t: t**2, lambda t: t),
    ],
)
def test_a_wrong_derivative_is_found(f, df):
    with pytest.raises(InvalidActivationError, match="df is not the derivative of f near t = "):
        Activation("mine", f, df)


@pytest.mark.parametrize("kinks", [(), (0.25,)])
@pytest.mark.parametrize("jump", [1.0, -1e-3])
def test_a_discontinuous_function_is_refused_even_with_a_kink(kinks, jump):
    f = lambda t: np.tanh(t) + np.where(t > 0.25, jump, 0.0)  # noqa: E731
    with pytest.raises(
        InvalidActivationError, match=r"f must be continuous, it jumps near t = 0\.25"
    ):
        Activation("mine", f, dtanh, kinks)


class Unhashable:
    __hash__ = None

    def __call__(self, t):
        return t


@pytest.mark.parametrize(
    ("f", "df", "text"),
    [
        (math.tanh, dtanh, "f must accept numpy arrays"),
        (np.tanh, lambda t: 1.0 if t > 0 else 0.0, "df must accept numpy arrays"),
        (lambda t: 1.0, dtanh, "f must be vectorised"),
        (lambda t: np.exp(t) / np.exp(t).sum(), dtanh, "f must act elementwise"),
        (lambda t: t / t * t, np.ones_like, "f is not finite at t = 0"),
        (np.tanh, lambda t: np.where(t > 19, np.inf, 1.0), "df is not finite at t = 19"),
        (lambda t: t + 0j, np.ones_like, "f must return real numbers, got dtype complex128"),
        (None, np.ones_like, "f must be callable"),
        (Unhashable(), np.ones_like, "f must be hashable"),
    ],
)
def test_unusable_functions_are_named(f, df, text):
    with pytest.raises(InvalidActivationError, match=f"mine: {text}"):
        Activation("mine", f, df)


def test_homogeneity_is_checked():
    assert Activation("mine", np.abs, np.sign, (0.0,), homogeneous=True).homogeneous
    for f, df in ((np.tanh, dtanh), (lambda t: t + 1.0, np.ones_like)):
        with pytest.raises(InvalidActivationError, match="declared homogeneous"):
            Activation("mine", f, df, homogeneous=True)


def test_arguments_are_checked():
    with pytest.raises(TypeError, match="name must be a non-empty string"):
        Activation("", np.tanh, dtanh)
    with pytest.raises(TypeError, match="kinks must be a sequence"):
        Activation("mine", act.relu.f, drelu, 0.0)
    with pytest.raises(ValueError, match=r"kinks\[0\] must be finite"):
        Activation("mine", act.relu.f, drelu, (math.nan,))
    assert Activation("mine", act.relu.f, drelu, [3.0, 0.0, 0]).kinks == (0.0, 3.0)


def test_frozen():
    with pytest.raises(AttributeError):
        act.relu.name = "other"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hard_tanh(1,,2)", "parameter 2 must be a number, got nothing"),
        ("hard_tanh(1,2,)", "parameter 3 must be a number, got nothing"),
        ("hard_tanh(,)", "parameter 1 must be a number, got nothing"),
        ("leaky_relu(a)", "parameter 1 must be a number, got 'a'"),
        ("leaky_relu(0.1, 0.2)", "leaky_relu takes the numbers slope, got 2"),
        ("quadratic(1)", "quadratic takes the numbers q, r, got 1"),
        ("quadratic(nan, 1)", "q must be finite"),
    ],
)
def test_get_explains_bad_parameters(name, text):
    with pytest.raises(ValueError, match=rf"got '{re.escape(name)}': {re.escape(text)}"):
        act.get(name)


def test_too_many_and_too_distant_kinks_are_refused():
    identity = (lambda t: t, np.ones_like)
    assert len(Activation("mine", *identity, np.linspace(-5, 5, 300)).kinks) == 300
    with pytest.raises(ValueError, match="kinks must hold at most 1000 places, got 10000"):
        Activation("mine", *identity, np.linspace(-5, 5, 10000))
    with pytest.raises(ValueError, match=r"kinks must lie within 1e\+50 of 0, got 1e\+300"):
        Activation("mine", *identity, (1e300,))


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda t: 1 / 0, "f must accept numpy arrays .* it raised ZeroDivisionError"),
        (lambda t: np.ma.masked_array(t), "f must not return a masked array"),
        (lambda t: np.maximum(t, 0.0, out=t), "f must not change the array it is given"),
    ],
)
def test_functions_that_misbehave_are_named(f, text):
    with pytest.raises(InvalidActivationError, match=f"mine: {text}"):
        Activation("mine", f, np.ones_like, (0.0,))


@named
def test_tails_underflow_silently_in_a_strict_numpy(a):
    t = np.array([-1e308, -1e10, -800.0, -39.0, -1e-310, 0.0, 5e-324, 39.0, 800.0, 1e308])
    expected = a.f(t), a.df(t)
    with np.errstate(all="raise"):
        np.testing.assert_array_equal(a.f(t), expected[0])
        np.testing.assert_array_equal(a.df(t), expected[1])


def test_the_checks_of_a_readers_activation_run_in_a_strict_numpy():
    with np.errstate(all="raise"):
        Activation("bump", lambda t: np.exp(-(t**4)), lambda t: -4 * t**3 * np.exp(-(t**4)))
