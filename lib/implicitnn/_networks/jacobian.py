r"""Spectral radius of :math:`J_i = diag(s_i)\,M`, one Jacobian for each row of s."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import linalg as sparse

FloatArray = NDArray[np.float64]
METHODS = ("arnoldi", "power", "exact")
BURN_IN, PRODUCTS, TAIL = 10, 40, 10


@dataclass(frozen=True, eq=False)
class SpectralRadius:
    """Estimates for n samples.

    value : (n,) modulus of the largest eigenvalue found; NaN where there is none.
    error : (n,) as the method states it; infinite where ARPACK found none, or the slopes are not
        finite.
    method : which one.
    """

    value: FloatArray
    error: FloatArray
    method: str


def spectral_radius(
    slope: FloatArray, matrix: FloatArray, method: str, tol: float, rng: np.random.Generator
) -> SpectralRadius:
    """Estimate all samples by one method."""
    value, error = np.full(len(slope), np.nan), np.full(len(slope), np.inf)
    # The Jacobian of a sample is zero where its slopes are, and then it has no start for ARPACK.
    finite, zero = np.isfinite(slope).all(axis=1), ~slope.any(axis=1)
    value[zero], error[zero] = 0.0, 0.0
    kept = np.flatnonzero(finite & ~zero)
    if method == "power" and len(kept):
        value[kept], error[kept] = _power(slope[kept], matrix, rng)
    elif len(kept):
        one = _exact if method == "exact" else _arnoldi
        found = [one(s, matrix, tol, rng) for s in slope[kept]]
        value[kept], error[kept] = (np.array(column) for column in zip(*found, strict=True))
    return SpectralRadius(value, error, method)


def _exact(
    s: FloatArray, matrix: FloatArray, tol: float, rng: np.random.Generator
) -> tuple[float, float]:
    return float(np.abs(np.linalg.eigvals(s[:, None] * matrix)).max()), 0.0


def _arnoldi(
    s: FloatArray, matrix: FloatArray, tol: float, rng: np.random.Generator
) -> tuple[float, float]:
    m = len(s)
    if m < 4:  # ARPACK needs room for its subspace
        return _exact(s, matrix, tol, rng)

    def product(v: NDArray[np.complexfloating]) -> NDArray[np.complexfloating]:
        return np.asarray(s * (matrix @ v))

    start = rng.standard_normal(m)
    operator = sparse.LinearOperator((m, m), matvec=product, dtype=np.float64)
    try:
        values, vectors = sparse.eigs(
            operator, k=1, which="LM", v0=start, tol=tol, ncv=min(m, 40), maxiter=50
        )
    except sparse.ArpackNoConvergence as partial:
        values, vectors = partial.eigenvalues, partial.eigenvectors
    if len(values) == 0:
        return float("nan"), float("inf")
    k = int(np.argmax(np.abs(values)))
    size = float(np.abs(values[k]))
    residual = float(np.linalg.norm(product(vectors[:, k]) - values[k] * vectors[:, k]))
    return size, residual / size if size else residual


def _power(
    slope: FloatArray, matrix: FloatArray, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    v = rng.standard_normal(slope.shape)
    logs = np.zeros((PRODUCTS + 1, len(slope)))
    for k in range(1, PRODUCTS + 1):
        v = slope * (v @ matrix.T)
        size = np.linalg.norm(v, axis=1)
        logs[k] = logs[k - 1] + np.log(np.maximum(size, np.finfo(float).tiny))
        v /= np.maximum(size, np.finfo(float).tiny)[:, None]
    lengths = np.arange(PRODUCTS - TAIL, PRODUCTS + 1) - BURN_IN
    rates = np.exp((logs[-TAIL - 1 :] - logs[BURN_IN]) / lengths[:, None])
    return rates[-1], 0.5 * (rates.max(axis=0) - rates.min(axis=0))
