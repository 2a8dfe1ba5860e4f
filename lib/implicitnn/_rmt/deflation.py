"""Extreme eigenpairs with their multiplicities: look again where nothing was found so far.

A Krylov space holds one vector of each eigenspace. Copies of a multiple eigenvalue come from
rounding alone, and may come late or never.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh

from implicitnn._validate import FloatArray

Product = Callable[[FloatArray], FloatArray]

COARSE = 1e-3  # relative residual of the first look; a value that near is looked at again
_BASIS = 20  # Lanczos vectors of a look


def complete(
    product: Product,
    values: FloatArray,
    vectors: FloatArray,
    which: str,
    tol: float,
    restarts: int,
    generator: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Return as many pairs as given, the extreme ones of which Lanczos may have passed some over.

    ``which`` is one of ARPACK's LA, SA, BE, LM. For each end, the largest eigenvalue left in the
    orthogonal complement is taken from a new random start, and kept where it lies beyond the last
    one found, until none does.
    """
    count = len(values)
    low = {"LA": 0, "SA": count, "BE": count // 2, "LM": 0}[which]
    if which == "LM":
        return _end(product, values, vectors, count, np.abs, "LM", tol, restarts, generator)
    if low > 1:
        values, vectors = _end(
            product, values, vectors, low, np.negative, "SA", tol, restarts, generator
        )
    if count - low > 1:
        values, vectors = _end(
            product, values, vectors, count - low, np.positive, "LA", tol, restarts, generator
        )
    order = np.argsort(values, kind="stable")
    kept = np.concatenate([order[:low], order[len(order) - (count - low) :]])
    return values[kept], vectors[:, kept]


def _end(
    product: Product,
    values: FloatArray,
    vectors: FloatArray,
    wanted: int,
    rank: np.ufunc,
    which: str,
    tol: float,
    restarts: int,
    generator: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Add pairs until the ``wanted`` ones of highest rank are known; for LM only these are kept."""
    # All ranks below count as equal: an eigenvalue is known to tol of the largest.
    slack = tol * float(np.abs(values).max())
    for _ in range(wanted):
        last = float(np.sort(rank(values))[-wanted])
        found = _look(product, values, vectors, last, rank, which, tol, restarts, generator)
        if found is None or float(rank(found[0])) <= last + slack:
            break
        values = np.append(values, found[0])
        vectors = np.column_stack([vectors, found[1]])
    if which == "LM":
        kept = np.argsort(-np.abs(values), kind="stable")[:wanted]
        return values[kept], vectors[:, kept]
    return values, vectors


def _look(
    product: Product,
    values: FloatArray,
    vectors: FloatArray,
    last: float,
    rank: np.ufunc,
    which: str,
    tol: float,
    restarts: int,
    generator: np.random.Generator,
) -> tuple[float, FloatArray] | None:
    """Return the highest pair of the complement; None where it is clearly below ``last``."""
    n = len(vectors)
    start = _outside(generator.standard_normal(n), vectors)
    start /= np.linalg.norm(start)
    image = product(start)
    # A mean of the eigenvalues left is never extreme among them: put there, the known vectors
    # are not found again.
    mean = float(start @ image)
    spread = float(np.linalg.norm(_outside(image, vectors) - mean * start))
    size = max(float(np.abs(values).max()), float(np.linalg.norm(image)))
    if spread <= tol * size:
        return mean, start
    # ARPACK asks for a residual relative to the eigenvalue, which at 0 it never reaches.
    move = {"LA": spread - mean, "SA": -spread - mean, "LM": 0.0}[which]

    def deflated(v: FloatArray) -> FloatArray:
        v = v.ravel()
        inside = vectors @ (vectors.T @ v)
        return np.asarray(_outside(product(v - inside), vectors) + mean * inside + move * v)

    operator = LinearOperator((n, n), matvec=deflated, dtype=np.float64)
    for limit in (max(tol, COARSE), tol):
        found, columns = eigsh(
            operator,
            k=1,
            which=which,
            v0=start,
            tol=limit,
            ncv=min(n, _BASIS),
            maxiter=restarts,
            rng=generator,
        )
        theta = float(found[0]) - move
        start = _outside(columns[:, 0], vectors)
        start /= np.linalg.norm(start)
        if float(rank(theta)) + limit * abs(float(found[0])) < last:
            return None
    return theta, start


def _outside(v: FloatArray, vectors: FloatArray) -> FloatArray:
    """Return v without its part in the span of the orthonormal columns, to rounding."""
    v = v - vectors @ (vectors.T @ v)
    return np.asarray(v - vectors @ (vectors.T @ v))
