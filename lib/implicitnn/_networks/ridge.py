r"""Ridge regression of centred one-hot labels, in closed form, in the smaller of its two sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

FloatArray = NDArray[np.float64]
BLOCK = 4096


@dataclass(frozen=True)
class Moments:
    """F^T F and F^T T (m, K) of n samples, accumulated in float64 from blocks."""

    gram: FloatArray
    cross: FloatArray
    n: int

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.gram + other.gram, self.cross + other.cross, self.n + other.n)


def moments(F: NDArray[np.floating], targets: FloatArray) -> Moments:
    """Moments of samples in rows; only a block is held in float64."""
    m = F.shape[1]
    gram, cross = np.zeros((m, m)), np.zeros((m, targets.shape[1]))
    for start in range(0, len(F), BLOCK):
        part = np.asarray(F[start : start + BLOCK], dtype=np.float64)
        gram += part.T @ part
        cross += part.T @ targets[start : start + BLOCK]
    return Moments(gram, cross, len(F))


def from_moments(m: Moments, penalty: float) -> FloatArray:
    """(F^T F + n lambda)^{-1} F^T T."""
    matrix = m.gram.copy()
    matrix.flat[:: len(matrix) + 1] += m.n * penalty
    return np.asarray(linalg.solve(matrix, m.cross, assume_a="pos", overwrite_a=True))


def dual(F: NDArray[np.floating], targets: FloatArray, penalties: list[float]) -> list[FloatArray]:
    """F^T (F F^T + n lambda)^{-1} T for each penalty: for fewer samples than features."""
    rows = np.asarray(F, dtype=np.float64)
    outer = rows @ rows.T
    found = []
    for penalty in penalties:
        matrix = outer.copy()
        matrix.flat[:: len(matrix) + 1] += len(rows) * penalty
        found.append(rows.T @ linalg.solve(matrix, targets, assume_a="pos", overwrite_a=True))
    return found
