"""Powers of two that bring numbers of any size to where their squares are finite."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse.linalg import LinearOperator

from implicitnn._validate import FloatArray

# Within these bounds a sum of squares of any length neither overflows nor loses digits.
_LOW, _HIGH = 1e-100, 1e100


def largest(array: FloatArray) -> float:
    """Return the largest entry in size, without a copy."""
    return max(float(array.max()), -float(array.min()), 0.0)


def exponent(size: float) -> int:
    """Return k with size of the order of 2^k, or 0 where no scaling is needed."""
    return 0 if size == 0.0 or _LOW <= size <= _HIGH else math.frexp(size)[1]


def shifted(array: FloatArray, power: int) -> FloatArray:
    """Return the array times 2^power; itself where power is 0. Small entries may vanish."""
    if power == 0:
        return array
    with np.errstate(under="ignore", over="ignore"):
        # In two steps: 2^power alone may be beyond float64.
        half = power // 2
        return np.asarray(np.ldexp(np.ldexp(array, half), power - half))


def restored(values: FloatArray, power: int, name: str) -> FloatArray:
    """Return values times 2^power, and refuse what leaves float64."""
    result = shifted(values, power)
    if not np.isfinite(result).all():
        raise ValueError(
            f"{name} has eigenvalues beyond 1.8e308, the largest float64: divide it by a number"
        )
    return result


def norm(vector: FloatArray) -> float:
    """Return the Euclidean norm of a finite vector; inf only where it is beyond float64."""
    power = exponent(largest(vector)) if vector.size else 0
    size = float(np.linalg.norm(shifted(vector, -power)))
    try:
        return math.ldexp(size, power)
    except OverflowError:
        return math.inf


class Shifted(LinearOperator):  # type: ignore[misc]
    """The operator A 2^power, applied so that neither factor overflows."""

    def __init__(self, operator: LinearOperator, power: int) -> None:
        self.operator, self.power = operator, power
        super().__init__(dtype=np.dtype(np.float64), shape=operator.shape)

    def _matvec(self, v: FloatArray) -> FloatArray:
        return np.asarray(shifted(np.asarray(self.operator @ v, dtype=np.float64), self.power))

    def _matmat(self, M: FloatArray) -> FloatArray:
        return np.asarray(shifted(np.asarray(self.operator @ M, dtype=np.float64), self.power))
