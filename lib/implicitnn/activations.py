r"""Activation functions: a function, its derivative, and the places where the derivative jumps."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from implicitnn import _validate
from implicitnn._gaussian.activation_checks import check

FloatArray = NDArray[np.float64]
Function = Callable[[FloatArray], FloatArray]

_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)
_MOST_KINKS = 1000
# Tails that underflow are zero to rounding, whatever the caller's np.errstate says.
_UNDERFLOW = np.errstate(under="ignore")


@dataclass(frozen=True)
class Activation:
    r"""A scalar function applied elementwise, with what the theory needs to know about it.

    ``f`` must be continuous, and continuously differentiable but for finitely many kinks. The three
    parts are checked against each other at construction, on :math:`|t| \le 20`, or up to twice the
    largest declared kink where that is further out:

    - f and df are vectorised, elementwise, real and finite;
    - f is continuous: no jump above 1e-6 of its size;
    - f' has no jump above 1e-6 of its size but at a declared kink;
    - :math:`f(b) - f(a) = \int_a^b f'` on a few hundred short intervals, to 1e-6;
    - a function declared homogeneous satisfies f(c t) = c f(t) for c > 0.

    A declared kink where nothing jumps does no harm.

    Parameters
    ----------
    name : label, used in messages and tables.
    f, df : vectorised functions of an array; the value of df at a kink does not matter.
    kinks : at most 1000 places where f' jumps, none beyond 1e50.
    homogeneous : f is positively homogeneous of degree one (as ReLU is).

    Raises
    ------
    InvalidActivationError : the parts contradict each other; the message says where.

    Examples
    --------
    >>> shrink = Activation(
    ...     "shrink",
    ...     lambda t: np.sign(t) * np.maximum(np.abs(t) - 1.0, 0.0),
    ...     lambda t: np.where(np.abs(t) > 1.0, 1.0, 0.0),
    ...     kinks=(-1.0, 1.0),
    ... )
    >>> shrink(np.array([-3.0, 0.5, 2.0])).tolist()
    [-2.0, 0.0, 1.0]
    """

    name: str
    f: Function
    df: Function
    kinks: tuple[float, ...] = ()
    homogeneous: bool = False

    def __init__(
        self,
        name: str,
        f: Function,
        df: Function,
        kinks: Sequence[float] = (),
        *,
        homogeneous: bool = False,
    ) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"name must be a non-empty string, got {_validate.shown(name)}")
        places = _places(kinks)
        check(name, f, df, places, bool(homogeneous))
        self._fill(name, f, df, places, homogeneous)

    def _fill(
        self, name: str, f: Function, df: Function, kinks: tuple[float, ...], homogeneous: bool
    ) -> None:
        for field, value in (
            ("name", name),
            ("f", f),
            ("df", df),
            ("kinks", kinks),
            ("homogeneous", bool(homogeneous)),
        ):
            object.__setattr__(self, field, value)

    def __call__(self, t: FloatArray) -> FloatArray:
        """f(t)."""
        return self.f(t)

    def __repr__(self) -> str:
        """Name only."""
        return f"Activation({self.name})"


def _places(kinks: Sequence[float]) -> tuple[float, ...]:
    places = tuple(sorted(set(_validate.reals(kinks, "kinks"))))
    if len(places) > _MOST_KINKS:
        raise ValueError(
            f"kinks must hold at most {_MOST_KINKS} places, got {len(places)}: every integral is "
            "cut at each of them"
        )
    far = [place for place in places if abs(place) > _validate.LARGEST_SCALE]
    if far:
        raise ValueError(f"kinks must lie within {_validate.LARGEST_SCALE:g} of 0, got {far[0]}")
    return places


def _shipped(
    name: str, f: Function, df: Function, kinks: tuple[float, ...] = (), homogeneous: bool = False
) -> Activation:
    """Build an activation of this module; its family is checked by the tests."""
    activation = object.__new__(Activation)
    activation._fill(name, f, df, kinks, homogeneous)
    return activation


@dataclass(frozen=True)
class _Leaky:
    slope: float

    def __call__(self, t: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return np.where(np.asarray(t) > 0, t, self.slope * np.asarray(t))


@dataclass(frozen=True)
class _LeakyDerivative:
    slope: float

    def __call__(self, t: FloatArray) -> FloatArray:
        return np.where(np.asarray(t) > 0, 1.0, self.slope)


@dataclass(frozen=True)
class _Clip:
    a: float
    c: float

    def __call__(self, t: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return self.a * np.clip(t, -self.c, self.c)


@dataclass(frozen=True)
class _ClipDerivative:
    a: float
    c: float

    def __call__(self, t: FloatArray) -> FloatArray:
        return np.where(np.abs(t) < self.c, self.a, 0.0)


@dataclass(frozen=True)
class _Quadratic:
    q: float
    r: float

    def __call__(self, t: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return np.asarray(t) * (self.q * np.asarray(t) + self.r)


@dataclass(frozen=True)
class _QuadraticDerivative:
    q: float
    r: float

    def __call__(self, t: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return 2.0 * self.q * np.asarray(t) + self.r


def _relu(t: FloatArray) -> FloatArray:
    return np.maximum(t, 0.0)


def _drelu(t: FloatArray) -> FloatArray:
    return np.where(np.asarray(t) > 0, 1.0, 0.0)


@_UNDERFLOW
def _dtanh(t: FloatArray) -> FloatArray:
    decay = np.exp(-2.0 * np.minimum(np.abs(t), 400.0))
    return np.asarray(4.0 * decay / (1.0 + decay) ** 2)


@_UNDERFLOW
def _swish(t: FloatArray) -> FloatArray:
    return np.asarray(t * special.expit(t))


@_UNDERFLOW
def _dswish(t: FloatArray) -> FloatArray:
    rise = special.expit(t)
    return np.asarray(rise * (1.0 + np.clip(t, -750.0, 750.0) * special.expit(-np.asarray(t))))


@_UNDERFLOW
def _elu(t: FloatArray) -> FloatArray:
    return np.where(np.asarray(t) > 0, t, np.expm1(np.minimum(t, 0.0)))


@_UNDERFLOW
def _delu(t: FloatArray) -> FloatArray:
    return np.exp(np.minimum(t, 0.0))


def _erf(t: FloatArray) -> FloatArray:
    return np.asarray(special.erf(t))


@_UNDERFLOW
def _derf(t: FloatArray) -> FloatArray:
    near = np.clip(t, -27.0, 27.0)
    return _TWO_OVER_SQRT_PI * np.exp(-near * near)


@_UNDERFLOW
def _gelu(t: FloatArray) -> FloatArray:
    return np.asarray(t * special.ndtr(t))


@_UNDERFLOW
def _dgelu(t: FloatArray) -> FloatArray:
    near = np.clip(t, -38.0, 38.0)
    bump: FloatArray = near * np.exp(-0.5 * near * near) * _INV_SQRT_2PI
    return np.asarray(special.ndtr(t) + bump)


def _identity(t: FloatArray) -> FloatArray:
    return np.asarray(t)


def _one(t: FloatArray) -> FloatArray:
    return np.ones_like(t, dtype=np.float64)


relu = _shipped("relu", _relu, _drelu, (0.0,), homogeneous=True)
tanh = _shipped("tanh", np.tanh, _dtanh)
swish = _shipped("swish", _swish, _dswish)
elu = _shipped("elu", _elu, _delu)
erf = _shipped("erf", _erf, _derf)
gelu = _shipped("gelu", _gelu, _dgelu)
linear = _shipped("linear", _identity, _one, homogeneous=True)


def leaky_relu(slope: float = 0.01) -> Activation:
    """Leaky ReLU: t for t > 0, slope * t for t < 0; any real slope (-1: absolute value).

    Examples
    --------
    >>> leaky_relu(0.1)(np.array([-2.0, 3.0])).tolist()
    [-0.2, 3.0]
    """
    slope = _validate.real(slope, "slope")
    kinks = () if slope == 1.0 else (0.0,)
    name = f"leaky_relu({slope!r})"
    return _shipped(name, _Leaky(slope), _LeakyDerivative(slope), kinks, homogeneous=True)


def hard_tanh(a: float = 1.0, c: float = 1.0) -> Activation:
    """Hard tanh: a * clip(t, -c, c), c > 0; slope a in the middle, flat outside.

    Examples
    --------
    >>> hard_tanh(2.0, 0.5)(np.array([-3.0, 0.25])).tolist()
    [-1.0, 0.5]
    """
    a, c = _validate.real(a, "a"), _validate.positive(c, "c")
    return _shipped(f"hard_tanh({a!r}, {c!r})", _Clip(a, c), _ClipDerivative(a, c), (-c, c))


def quadratic(q: float, r: float) -> Activation:
    """Quadratic q t^2 + r t; a constant term would not matter, since networks are centred.

    Examples
    --------
    >>> quadratic(1.0, 0.5)(np.array([2.0])).tolist()
    [5.0]
    """
    q, r = _validate.real(q, "q"), _validate.real(r, "r")
    return _shipped(f"quadratic({q!r}, {r!r})", _Quadratic(q, r), _QuadraticDerivative(q, r))


_FIXED = {a.name: a for a in (relu, tanh, swish, elu, erf, gelu, linear)}
_FAMILIES: dict[str, Callable[..., Activation]] = {
    "leaky_relu": leaky_relu,
    "hard_tanh": hard_tanh,
    "quadratic": quadratic,
}


def shipped(activation: Activation) -> bool:
    """Return whether an activation is one of this module, whose every narrow feature is a kink."""
    return activation in _FIXED.values() or isinstance(activation.f, _Leaky | _Clip | _Quadratic)


def get(name: str) -> Activation:
    """Return the shipped activation with this name, such as "relu" or "leaky_relu(0.01)".

    Raises
    ------
    ValueError : there is no such name; the message lists them all.

    Examples
    --------
    >>> get("hard_tanh(0.5, 2)") == hard_tanh(0.5, 2.0)
    True
    """
    known = ", ".join([*_FIXED, *(f"{family}(...)" for family in _FAMILIES)])
    error = f"activation must be one of {known}; got {_validate.shown(name)}"
    if not isinstance(name, str):
        raise TypeError(error)
    if name.strip() in _FIXED:
        return _FIXED[name.strip()]
    match = re.fullmatch(r"\s*(\w+)\s*(?:\(([^()]*)\))?\s*", name)
    if match is None or match[1] not in _FAMILIES:
        raise ValueError(error)
    try:
        return _member(match[1], (match[2] or "").strip())
    except ValueError as problem:
        raise ValueError(f"{error}: {problem}") from problem


def _member(family: str, text: str) -> Activation:
    """Return the member of a family whose parameters are the numbers in ``text``."""
    parts = [part.strip() for part in text.split(",")] if text else []
    values = []
    for position, part in enumerate(parts, start=1):
        try:
            values.append(float(part))
        except ValueError as problem:
            what = repr(part) if part else "nothing"
            raise ValueError(f"parameter {position} must be a number, got {what}") from problem
    parameters = inspect.signature(_FAMILIES[family]).parameters
    least = sum(p.default is inspect.Parameter.empty for p in parameters.values())
    if not least <= len(values) <= len(parameters):
        raise ValueError(f"{family} takes the numbers {', '.join(parameters)}, got {len(values)}")
    return _FAMILIES[family](*values)
