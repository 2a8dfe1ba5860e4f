"""The mean that a network subtracts from its activation, the energy that is left, and refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from implicitnn import gaussian
from implicitnn.errors import AccuracyError

FloatArray = NDArray[np.float64]
Function = Callable[[FloatArray], FloatArray]

# Values up to here have squares that are far from overflow.
LARGEST_VALUE = 1e150
# Root mean squares outside of these bounds make kernels whose products leave float64.
SMALLEST_OUTPUT, LARGEST_OUTPUT = 1e-100, 1e100
_SNAP = 1e-15
_CLEAR = 1e-12  # a mean this large beside f(tau) is no rounding noise
_ROUNDING = 1e-14


def offset(f: Function, tau: float, kinks: Sequence[float]) -> float:
    r"""Return :math:`E f(\tau\xi)`, exactly 0 where it is below 1e-15 of the root mean square.

    The mean of an odd function comes out as rounding noise. Subtracting that would break f(0) = 0,
    on which the kernels of a sample at zero rest.
    """
    mean = gaussian.expectation(f, tau, kinks)
    if mean == 0.0 or abs(mean) > _CLEAR * float(np.abs(f(np.array([-tau, tau]))).max()):
        return mean
    size = math.sqrt(energy(lambda t: f(t) - mean, tau, kinks))
    return 0.0 if abs(mean) < _SNAP * size else mean


def energy(phi: Function, tau: float, kinks: Sequence[float]) -> float:
    r"""Return :math:`E\phi(\tau\xi)^2`."""

    def with_square(t: FloatArray) -> FloatArray:
        value = phi(t)
        return np.stack([value, value * value])

    # phi rides along: where it is steep the panels of its square are refined too.
    return float(gaussian.expectations(with_square, tau, kinks)[1])


def moderate(f: Function, taus: FloatArray) -> NDArray[np.bool_]:
    """Return whether the squares of f stay finite as far out as expectations reach, (m,)."""
    ends = gaussian.WINDOW * np.concatenate([-taus, taus])
    with np.errstate(all="ignore"):
        small = np.abs(np.asarray(f(ends), dtype=np.float64)) <= LARGEST_VALUE
    return np.asarray(small[: taus.size] & small[taus.size :])


def require_moderate(name: str, f: Function, tau: float) -> None:
    """Refuse a function, called ``name``, whose squares overflow at the scale tau."""
    if not moderate(f, np.array([tau]))[0]:
        raise ValueError(
            f"{name} exceeds {LARGEST_VALUE:g}, or is not finite, at the scale tau = {tau:.6g} of "
            f"its argument (at |t| = {gaussian.WINDOW:g} tau): its square overflows"
        )


def require_output(name: str, square: float, mean: float, tau: float) -> None:
    """Refuse an activation, called ``name``, that is zero once its mean is subtracted."""
    root = math.sqrt(square)
    if root <= max(SMALLEST_OUTPUT, _ROUNDING * abs(mean)):
        left = f" once its mean {mean:.6g} is subtracted" if mean else ""
        raise ValueError(
            f"{name} has no output: at the scale tau = {tau:.6g} of its argument it vanishes to "
            f"rounding{left}, so that every kernel would be zero"
        )
    if root > LARGEST_OUTPUT:
        raise ValueError(
            f"{name} is too large: at the scale tau = {tau:.6g} of its argument its root mean "
            f"square is {root:.6g}, the largest allowed is {LARGEST_OUTPUT:g}"
        )


@contextmanager
def named(name: str) -> Iterator[None]:
    """Put ``name`` in front of what goes wrong inside; floating point stays silent there.

    Every expectation checks that it is finite, so that overflow does not pass unseen, and underflow
    to zero is right.
    """
    try:
        with np.errstate(all="ignore"):
            yield
    except AccuracyError as problem:
        raise AccuracyError(f"{name}: {problem}") from problem
    except ArithmeticError as problem:
        raise ValueError(f"{name}: a number on the way leaves float64 ({problem})") from problem
