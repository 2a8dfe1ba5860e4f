"""Argument checks: every refusal names the argument and the value."""

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
