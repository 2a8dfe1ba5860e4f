"""Samples with their squared norms, and the range of norms that a table covers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
STEP = 0.25
WIDEST = 300.0


@dataclass(frozen=True)
class Samples:
    """Rows of a matrix (n, p) and their squared norms (n,)."""

    rows: FloatArray
    q: FloatArray

    @classmethod
    def of(cls, rows: FloatArray) -> Samples:
        """Compute the norms; they overflow to infinity silently, which is checked later."""
        with np.errstate(over="ignore"):
            return cls(rows, np.einsum("ij,ij->i", rows, rows))

    @cached_property
    def inverse(self) -> FloatArray:
        """1/|x|, with 0 for x = 0."""
        return np.divide(1.0, np.sqrt(self.q), out=np.zeros_like(self.q), where=self.q > 0)


def norm_range(q: FloatArray) -> tuple[float, float]:
    """Norms that one table should cover: all positive ones, or those around the median.

    The ends lie on a lattice of quarter powers of two, so that similar data share a table.
    """
    positive = q[q > 1e-280]
    if positive.size == 0:
        return 0.5, 1.0
    low, high = float(positive.min()), float(positive.max())
    if high > WIDEST * low:
        middle = float(np.median(positive))
        low, high = max(low, middle / 16.0), min(high, middle * 16.0)
    first = math.floor(math.log2(low) / STEP) * STEP
    last = max(math.ceil(math.log2(high) / STEP) * STEP, first + STEP)
    return 2.0**first, 2.0**last
