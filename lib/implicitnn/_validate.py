"""Argument checks. Each returns the cleaned value or raises naming the argument and the value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def real(value: object, name: str) -> float:
    """Return ``value`` as a finite float; booleans, complex, NaN and infinities are refused."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a real number, got {value!r} ({type(value).__name__})")
    number = float(value)
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


def reals(values: object, name: str) -> tuple[float, ...]:
    """Return ``values``, a flat collection of real numbers, as a tuple of finite floats."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise TypeError(f"{name} must be a sequence of real numbers, got {values!r}")
    return tuple(real(value, f"{name}[{i}]") for i, value in enumerate(values))


def integer(value: object, name: str, minimum: int = 0) -> int:
    """Return ``value`` as an int >= ``minimum``; floats and booleans are refused."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    number = int(value)
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}")
    return number


def one_of(value: object, name: str, options: Sequence[str]) -> str:
    """Return ``value`` if it is among ``options``; an unknown option is refused, never ignored."""
    if not isinstance(value, str) or value not in options:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}")
    return value


def real_array(value: ArrayLike, name: str, ndim: int) -> FloatArray:
    """Return ``value`` as a finite, C-contiguous float64 array with ``ndim`` axes, none empty."""
    array = np.asarray(value)
    if array.dtype.kind == "c":
        raise TypeError(f"{name} must be real, got complex dtype {array.dtype}")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    result = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(result).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(result))[0])
        raise ValueError(f"{name} must be finite, got {result[where]} at index {where}")
    return result


def generator(rng: np.random.Generator | int, name: str = "rng") -> np.random.Generator:
    """Return a Generator from a Generator or an integer seed; ``None`` is refused."""
    if isinstance(rng, np.random.Generator):
        return rng
    return np.random.default_rng(integer(rng, name))
