"""Covariances stored as a diagonal (p,) or a full matrix (p, p): checks, roots, traces."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from implicitnn import _validate
from implicitnn._validate import FloatArray

_SYMMETRY = 1e-10  # largest |C - C^T| accepted, relative to max |C|
_NEGATIVE = 1e-10  # most negative eigenvalue read as zero, relative to max diag(C)


def checked(value: ArrayLike, name: str, p: int) -> FloatArray:
    """Return a covariance as its diagonal (p,) or as a symmetric (p, p) matrix.

    Positive semidefiniteness of a matrix is left to `root`, which needs the factorisation anyway.
    """
    array = _validate.as_array(value, name)
    if array.ndim == 0:
        return np.full(p, _validate.variance(value, name))
    if array.shape not in ((p,), (p, p)):
        raise ValueError(f"{name} must have shape ({p},) or ({p}, {p}), got {array.shape}")
    array = _validate.real_array(array, name, array.ndim)
    _validate.within(array, name, _validate.LARGEST_VARIANCE)
    if array.ndim == 1:
        if array.min() < 0:
            j = int(np.argmin(array))
            raise ValueError(f"{name} must not be negative, got {array[j]} at index {j}")
        return array
    gap, size = float(np.abs(array - array.T).max()), float(np.abs(array).max())
    if gap > _SYMMETRY * size:
        raise ValueError(f"{name} must be symmetric, got |C - C^T| up to {gap:.3g}")
    return array if gap == 0.0 else 0.5 * (array + array.T)


@np.errstate(under="ignore")
def root(covariance: FloatArray, name: str) -> FloatArray:
    """Return R with R R^T = C, or the vector of square roots for a diagonal C."""
    if covariance.ndim == 1:
        return np.asarray(np.sqrt(covariance))
    margin = _NEGATIVE * float(np.abs(np.diag(covariance)).max())
    identity = np.eye(len(covariance))
    try:
        linalg.cholesky(covariance - margin * identity, lower=True, overwrite_a=True)
        return np.asarray(linalg.cholesky(covariance, lower=True))
    except linalg.LinAlgError:
        # Singular or indefinite: the eigenvalues tell which.
        values, vectors = linalg.eigh(covariance)
    if values[0] < -margin:
        raise ValueError(
            f"{name} must be positive semidefinite, got the eigenvalue {float(values[0])!r}"
        )
    kept = np.where(values > margin, values, 0.0)
    return np.asarray((vectors * np.sqrt(kept)) @ vectors.T)


def trace(covariance: FloatArray) -> float:
    """Return tr C."""
    return float(covariance.sum() if covariance.ndim == 1 else np.trace(covariance))


def trace_product(A: FloatArray, B: FloatArray) -> float:
    """Return tr(A B) for symmetric A, B, each a matrix or a diagonal."""
    if A.ndim == 1:
        return float(A @ (B if B.ndim == 1 else np.diag(B)))
    return float(np.diag(A) @ B) if B.ndim == 1 else float(np.vdot(A, B))
