"""Argument checks: every refusal names the argument and the value."""

from fractions import Fraction

import numpy as np
import pytest

from implicitnn import _validate


@pytest.mark.parametrize("value", [1, 2.5, np.float32(0.5), np.int64(3), np.array(4.0)])
def test_real_accepts_numbers(value):
    result = _validate.real(value, "x")
    assert type(result) is float
    assert result == float(value)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (True, TypeError),
        (np.bool_(False), TypeError),
        (1j, TypeError),
        ("1", TypeError),
        (None, TypeError),
        (np.ones(2), TypeError),
        (float("nan"), ValueError),
        (float("-inf"), ValueError),
    ],
)
def test_real_refuses(value, error):
    with pytest.raises(error, match="width"):
        _validate.real(value, "width")


def test_signs():
    assert _validate.positive(1e-300, "x") == 1e-300
    assert _validate.nonnegative(0, "x") == 0.0
    with pytest.raises(ValueError, match=r"tau must be positive, got 0\.0"):
        _validate.positive(0.0, "tau")
    with pytest.raises(ValueError, match=r"tau must not be negative, got -1\.0"):
        _validate.nonnegative(-1, "tau")


def test_integer():
    assert _validate.integer(np.int32(7), "n") == 7
    for value in (2.0, True, "3", None):
        with pytest.raises(TypeError, match="n must be an integer"):
            _validate.integer(value, "n")
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        _validate.integer(0, "n", minimum=1)


def test_one_of():
    assert _validate.one_of("all", "params", ("all", "published")) == "all"
    for value in ("publised", None, 3):
        with pytest.raises(ValueError, match="params must be one of 'all', 'published'"):
            _validate.one_of(value, "params", ("all", "published"))


def test_reals():
    assert _validate.reals([1, np.float64(2.5)], "kinks") == (1.0, 2.5)
    assert _validate.reals((), "kinks") == ()
    for value in (0.0, "01", None):
        with pytest.raises(TypeError, match="kinks must be a sequence of real numbers"):
            _validate.reals(value, "kinks")
    with pytest.raises(ValueError, match=r"kinks\[1\] must be finite"):
        _validate.reals([0.0, np.inf], "kinks")


def test_real_array_converts_to_contiguous_float64():
    source = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    array = _validate.real_array(source, "X", 2)
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    np.testing.assert_array_equal(array, source)


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (np.ones((2, 2), dtype=complex), TypeError, "X must be real, got complex"),
        (np.array([["a"]]), TypeError, "X must hold real numbers"),
        (np.array([[True]]), TypeError, "X must hold real numbers, got dtype bool"),
        (np.ones(3), ValueError, r"X must have 2 axes, got shape \(3,\)"),
        (np.ones((0, 3)), ValueError, "X must not be empty"),
        ([[1.0, np.nan]], ValueError, r"X must be finite, got nan at index \(0, 1\)"),
        ([[np.inf, 1.0]], ValueError, r"X must be finite, got inf at index \(0, 0\)"),
    ],
)
def test_real_array_refuses(value, error, text):
    with pytest.raises(error, match=text):
        _validate.real_array(value, "X", 2)


def test_generator():
    rng = np.random.default_rng(3)
    assert _validate.generator(rng) is rng
    assert _validate.generator(3).random() == np.random.default_rng(3).random()
    for value in (None, 1.5, np.random):
        with pytest.raises(TypeError, match="rng must be an integer"):
            _validate.generator(value)
    with pytest.raises(ValueError, match="rng must be at least 0, got -1"):
        _validate.generator(-1)


@pytest.mark.parametrize(
    "value", [10**400, -(10**5000), Fraction(10**400)], ids=["400", "5000", "fraction"]
)
def test_real_refuses_numbers_beyond_float64(value):
    with pytest.raises(ValueError, match=r"tau0 must be below 1\.8e308 in size, got"):
        _validate.real(value, "tau0")


def test_durations_are_no_numbers():
    """numpy counts timedelta64 among the integers."""
    for check in (_validate.real, _validate.integer):
        with pytest.raises(TypeError, match="n must be a"):
            check(np.timedelta64(3), "n")


def test_messages_never_fail_and_stay_short():
    class Silent:
        def __repr__(self):
            raise RuntimeError("no")

    assert "RuntimeError" in _validate.shown(Silent())
    assert len(_validate.shown(list(range(10000)))) < 250
    assert _validate.shown(10**5000) == f"2**{(10**5000).bit_length() - 1} or more"
    with pytest.raises(TypeError, match="x must be a real number"):
        _validate.real(Silent(), "x")
    with pytest.raises(ValueError, match="n must be at most 9007199254740992, got 2"):
        _validate.count(10**5000, "n")


def test_ranges():
    assert _validate.scale(1e-50, "tau0") == 1e-50
    assert _validate.count(2**53, "n") == 2**53
    assert _validate.variance(0, "s") == 0.0
    for value in (1e-51, 1e300):
        with pytest.raises(ValueError, match=r"tau0 must lie between 1e-50 and 1e\+50, got 1e"):
            _validate.scale(value, "tau0")
    with pytest.raises(ValueError, match=r"s must be at most 1e\+100, got 1e\+101"):
        _validate.variance(1e101, "s")
    with pytest.raises(ValueError, match=r"X must be at most 10 in size, got -11\.0 at \(1, 0\)"):
        _validate.within(np.array([[1.0], [-11.0]]), "X", 10.0)
    with pytest.raises(ValueError, match=r"n must be at most 9007199254740 for 1000 features"):
        _validate.table(10**13, 1000, "n", "features")


@pytest.mark.parametrize("wrap", [lambda a: a, lambda a: list(a), lambda a: tuple(a)])
@pytest.mark.parametrize("mask", [False, [[True, False], [False, False]]])
def test_masked_arrays_are_refused_whatever_they_hide(wrap, mask):
    masked = np.ma.masked_array(np.ones((2, 2)), mask)
    with pytest.raises(TypeError, match="X must not be a masked array"):
        _validate.real_array(wrap(masked), "X", 2)


@pytest.mark.parametrize("value", [[[1, 2], [3]], [1, [2, 3]], [np.ones(2), np.ones(3)]])
def test_ragged_lists_name_the_argument(value):
    with pytest.raises(ValueError, match="X must be a rectangular array"):
        _validate.real_array(value, "X", 2)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([[10**400]], r"dtype object with the entry 2\*\*1328 or more \(int\)"),
        ([[1.0, None]], r"dtype object with the entry None \(NoneType\)"),
        (None, r"with the entry None"),
        (np.zeros((2, 2), "M8[s]"), "dtype datetime64"),
        (np.zeros((2, 2), "m8[s]"), "dtype timedelta64"),
        (np.zeros((2, 2), [("a", float)]), "dtype"),
        ("abc", "dtype <U3"),
    ],
)
def test_what_is_no_number_is_named(value, text):
    with pytest.raises(TypeError, match=f"X must hold real numbers, got .*{text}"):
        _validate.real_array(value, "X", 2)


class Subclass(np.ndarray):
    """A subclass without a meaning of its own."""


def test_arrays_of_every_real_kind():
    source = np.arange(6.0).reshape(2, 3)
    locked = source.copy()
    locked.flags.writeable = False
    with np.errstate(all="raise"):
        for value in (
            source.astype(np.float16),
            source.astype(np.longdouble),
            source.astype(np.uint8),
            source.astype(">f8"),
            np.asfortranarray(source),
            source[::-1][::-1],
            source.view(Subclass),
            locked,
        ):
            result = _validate.real_array(value, "X", 2)
            assert type(result) is np.ndarray
            np.testing.assert_array_equal(result, source)


def test_long_doubles_beyond_float64_are_refused_without_a_warning():
    huge = np.array([np.longdouble("1e4000")])
    with np.errstate(all="raise"), pytest.raises(ValueError, match="x must be finite, got"):
        _validate.real_array(huge, "x", 1)
