r"""Ridge regression of centred one-hot labels, in closed form, in the smaller of its two sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BLOCK = 4096


@dataclass(frozen=True)
class Moments:
    """F^T F (lower triangle), F^T T (m, K) and |T|^2 of n samples, in float64."""

    gram: FloatArray
    cross: FloatArray
    square: float
    n: int

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.gram + other.gram,
            self.cross + other.cross,
            self.square + other.square,
            self.n + other.n,
        )

    def shifted(self, factor: float, shift: float) -> FloatArray:
        """Lower triangle of factor F^T F + shift, a new array."""
        matrix = factor * self.gram
        matrix.reshape(-1, order="A")[:: len(matrix) + 1] += shift
        return matrix

    def times(self, W: FloatArray) -> FloatArray:
        """F^T F W."""
        return np.asarray(linalg.blas.dsymm(1.0, self.gram, W, lower=True))


def moments(F: NDArray[np.floating], targets: FloatArray, rows: IntArray) -> Moments:
    """Moments of the named samples; only a block of them is held in float64."""
    m = F.shape[1]
    gram, cross = np.zeros((m, m), order="F"), np.zeros((m, targets.shape[1]))
    for start in range(0, len(rows), BLOCK):
        chosen = rows[start : start + BLOCK]
        part = F[chosen].astype(np.float64)
        # part.T is in Fortran order already: the sum is taken in place, half of it.
        linalg.blas.dsyrk(1.0, part.T, 1.0, gram, lower=True, overwrite_c=True)
        cross += part.T @ targets[chosen]
    _require_room(gram)
    own = targets[rows]
    return Moments(gram, cross, float(np.vdot(own, own)), len(rows))


def from_moments(m: Moments, penalty: float) -> FloatArray:
    """(F^T F + n lambda)^{-1} F^T T."""
    factor = cholesky(m.shifted(1.0, m.n * penalty), penalty)
    return np.asarray(linalg.cho_solve(factor, m.cross, check_finite=False))


def cholesky(matrix: FloatArray, penalty: float) -> tuple[FloatArray, bool]:
    """Cholesky factor of a lower triangle, which is overwritten.

    Raises
    ------
    ValueError : rounding has made the matrix indefinite.
    """
    try:
        found: tuple[FloatArray, bool] = linalg.cho_factor(
            matrix, lower=True, overwrite_a=True, check_finite=False
        )
    except linalg.LinAlgError as problem:
        raise _too_small(penalty) from problem
    return found


def _too_small(penalty: float) -> ValueError:
    return ValueError(
        f"penalty must exceed the rounding of the squares of F, which do not determine the "
        f"weights; got {penalty}"
    )


def _require_room(gram: FloatArray) -> None:
    if not np.isfinite(gram.diagonal()).all():
        raise ValueError("F must be smaller: its squares overflow")


def judged(m: Moments, penalty: float, W: FloatArray) -> tuple[float, float]:
    r"""Objective at W and the bound :math:`\|\nabla\|^2/(4\lambda)` of its distance from the least.

    From the moments: the objective loses :math:`\epsilon\|T\|^2/n` to rounding.
    """
    product = m.times(W)
    gradient = 2.0 * ((product - m.cross) / m.n + penalty * W)
    fit = (m.square - 2.0 * float(np.vdot(W, m.cross)) + float(np.vdot(W, product))) / m.n
    objective = fit + penalty * float(np.vdot(W, W))
    return objective, float(np.vdot(gradient, gradient)) / (4.0 * penalty)


def dual(F: NDArray[np.floating], targets: FloatArray, penalties: list[float]) -> list[FloatArray]:
    """F^T (F F^T + n lambda)^{-1} T for each penalty: for fewer samples than features."""
    rows = np.asarray(F, dtype=np.float64)
    outer = rows @ rows.T
    _require_room(outer)
    found = []
    for penalty in penalties:
        matrix = outer.copy(order="F")
        matrix.reshape(-1, order="A")[:: len(matrix) + 1] += len(rows) * penalty
        factor = cholesky(matrix, penalty)
        found.append(rows.T @ linalg.cho_solve(factor, targets, check_finite=False))
    return found
