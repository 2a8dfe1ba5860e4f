"""Argument checks. Each returns the cleaned value or raises naming the argument and the value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

# Squares, and fourth powers, of scales in this range are far from overflow and underflow.
SMALLEST_SCALE, LARGEST_SCALE = 1e-50, 1e50
SMALLEST_VARIANCE, LARGEST_VARIANCE = 1e-100, 1e100
# Beyond it not every integer is a float64.
LARGEST_COUNT = 2**53


def shown(value: object) -> str:
    """Return ``repr(value)`` cut to a readable length; it never fails."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        # Python refuses to print integers of more than 4300 digits.
        sign = "-" if value < 0 else ""
        return f"{sign}2**{value.bit_length() - 1} or more"
    try:
        text = repr(value)
    except Exception as problem:  # a message about a bad value must not fail because of it
        return f"<{type(value).__name__} whose repr fails: {type(problem).__name__}>"
    return text if len(text) <= 200 else f"{text[:120]}...{text[-60:]}"


def real(value: object, name: str) -> float:
    """Return ``value`` as a finite float; booleans, complex, NaN and infinities are refused."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_ | np.timedelta64) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {shown(value)} ({_kind(value)})")
    try:
        with np.errstate(all="ignore"):  # a long double may overflow; that is reported below
            number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be below 1.8e308 in size, got {shown(value)}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, got {number}")
    return number


def positive(value: object, name: str) -> float:
    """Return ``value`` as a float > 0."""
    number = real(value, name)
    if number <= 0:
        raise ValueError(f"{name} must be positive, got {number}")
    return number


def nonnegative(value: object, name: str) -> float:
    """Return ``value`` as a float >= 0."""
    number = real(value, name)
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number


def scale(value: object, name: str) -> float:
    """Return ``value`` as a float between 1e-50 and 1e50: a scale whose powers stay finite."""
    number = positive(value, name)
    if not SMALLEST_SCALE <= number <= LARGEST_SCALE:
        raise ValueError(
            f"{name} must lie between {SMALLEST_SCALE:g} and {LARGEST_SCALE:g}, got {number}"
        )
    return number


def variance(value: object, name: str) -> float:
    """Return ``value`` as a float from 0 to 1e100."""
    number = nonnegative(value, name)
    if number > LARGEST_VARIANCE:
        raise ValueError(f"{name} must be at most {LARGEST_VARIANCE:g}, got {number}")
    return number


def reals(values: object, name: str) -> tuple[float, ...]:
    """Return ``values``, a flat collection of real numbers, as a tuple of finite floats."""
    flat = isinstance(values, Iterable) and not isinstance(values, str | bytes | dict)
    if not flat or (isinstance(values, np.ndarray) and values.ndim == 0):
        raise TypeError(f"{name} must be a sequence of real numbers, got {shown(values)}")
    return tuple(
        real(value, f"{name}[{i}]") for i, value in enumerate(cast(Iterable[object], values))
    )


def integer(value: object, name: str, minimum: int = 0, maximum: int | None = None) -> int:
    """Return ``value`` as an int from ``minimum`` to ``maximum``; floats, booleans are refused."""
    number = _integer(value, f"{name} must be an integer")
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {shown(number)}")
    if maximum is not None and number > maximum:
        raise ValueError(f"{name} must be at most {maximum}, got {shown(number)}")
    return number


def count(value: object, name: str, minimum: int = 1) -> int:
    """Return ``value`` as an int from ``minimum`` to 2**53, where floats hold every integer."""
    return integer(value, name, minimum, LARGEST_COUNT)


def _integer(value: object, demand: str) -> int:
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    unfit = isinstance(value, bool | np.bool_ | np.timedelta64)
    if unfit or not isinstance(value, numbers.Integral):
        raise TypeError(f"{demand}, got {shown(value)} ({_kind(value)})")
    return int(value)


def one_of(value: object, name: str, options: Sequence[str]) -> str:
    """Return ``value`` if it is among ``options``; an unknown option is refused, never ignored."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(
            f"{name} must be one of {', '.join(map(repr, options))}; got {shown(value)}"
        )
    return value


def real_array(value: ArrayLike, name: str, ndim: int) -> FloatArray:
    """Return ``value`` as a finite, C-contiguous float64 array with ``ndim`` axes, none empty."""
    array = as_array(value, name)
    if array.dtype.kind == "c":
        raise TypeError(f"{name} must be real, got complex dtype {array.dtype}")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}{_first(array)}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} {_axes(ndim)}, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    with np.errstate(all="ignore"):  # a long double may overflow; that is reported below
        result = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(result).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(result))[0])
        raise ValueError(f"{name} must be finite, got {array[where]} at index {where}")
    return result


def as_array(value: ArrayLike, name: str) -> NDArray[Any]:
    """Return ``value`` as a plain array of any dtype; masked arrays and ragged lists are refused.

    A mask has no meaning in the formulas of this library, and dropping it would use the numbers
    that it hides.
    """
    if _masked(value):
        raise TypeError(
            f"{name} must not be a masked array, whose mask would be lost: "
            f"pass {name}.filled(value), or drop the masked samples"
        )
    try:
        return np.asarray(value)
    except ValueError as problem:
        raise ValueError(
            f"{name} must be a rectangular array, its rows have different lengths or nest "
            f"differently: {shown(value)}"
        ) from problem


def within(array: FloatArray, name: str, bound: float) -> None:
    """Refuse an array with an entry beyond ``bound`` in size."""
    if max(array.max(), -array.min()) > bound:
        where = np.unravel_index(int(np.argmax(np.abs(array))), array.shape)
        place = tuple(int(i) for i in where)
        raise ValueError(f"{name} must be at most {bound:g} in size, got {array[where]} at {place}")


def table(rows: int, columns: int, name: str, what: str) -> None:
    """Refuse ``rows`` (the argument ``name``) times ``columns`` numbers if no array holds them."""
    if rows * columns > LARGEST_COUNT:
        raise ValueError(
            f"{name} must be at most {LARGEST_COUNT // columns} for {columns} {what}, got {rows}: "
            "no array holds so many numbers"
        )


def generator(rng: np.random.Generator | int, name: str = "rng") -> np.random.Generator:
    """Return a Generator from a Generator or an integer seed; ``None`` is refused."""
    if isinstance(rng, np.random.Generator):
        return rng
    seed = _integer(rng, f"{name} must be an integer seed or a numpy.random.Generator")
    return np.random.default_rng(integer(seed, name))


def _masked(value: object) -> bool:
    """Return whether ``value`` is a masked array, or lists that hold one."""
    if isinstance(value, list | tuple):
        return any(_masked(part) for part in value)
    return isinstance(value, np.ma.MaskedArray)


def _first(array: NDArray[Any]) -> str:
    """Return what an array of Python objects starts with, for a message."""
    if array.dtype.kind != "O" or array.size == 0:
        return ""
    odd = next((x for x in array.flat if not _plain(x)), array.flat[0])
    return f" with the entry {shown(odd)} ({_kind(odd)})"


def _plain(value: object) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)


def _axes(ndim: int) -> str:
    return "axis" if ndim == 1 else "axes"


def _kind(value: object) -> str:
    return type(value).__name__
