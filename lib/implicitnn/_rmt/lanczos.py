"""Checks and extreme eigenpairs behind `spectra`: Lanczos with a dense way out."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from implicitnn import _validate
from implicitnn._rmt import deflation as _deflation
from implicitnn._rmt import scaling as _scaling
from implicitnn._validate import FloatArray
from implicitnn.errors import AccuracyError

SMALL = 64  # up to here a dense solver is both faster and safer than Lanczos
PAIRS = 256  # the same for vectors of an array
DENSE_LIMIT = 4096  # largest operator written out when Lanczos fails: 128 MB
_RESTARTS = 500
_SUBNORMAL = 1e-322  # rounding of products so small that they have no full mantissa
_ROWS = 512  # rows per block when a dense matrix is checked

Matrix: TypeAlias = FloatArray | LinearOperator


def checked(A: ArrayLike | LinearOperator, name: str, rng: np.random.Generator | int = 0) -> Matrix:
    """Return A as a float64 array or an operator; refuse what is not square, real and symmetric.

    An array is checked entry by entry, an operator by one random bilinear form.
    """
    if isinstance(A, LinearOperator):
        _check_operator(A, name, _validate.generator(rng))
        return A
    array = _validate.as_array(A, name)
    single = array.dtype == np.float32
    matrix = _validate.real_array(array, name, 2)
    _check_square(matrix.shape, name)
    size = _scaling.largest(matrix)
    with np.errstate(over="ignore", under="ignore"):
        gap = _asymmetry(matrix)
    if gap > (1e-4 if single else 1e-8) * size:
        raise ValueError(f"{name} must be symmetric, got |A - A^T| up to {gap:.3g}")
    return matrix


def dense(matrix: Matrix) -> FloatArray:
    """Write an operator out as a symmetric array; an array is returned as it is."""
    if isinstance(matrix, np.ndarray):
        return matrix
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        written = np.asarray(matrix @ np.eye(matrix.shape[0]), dtype=np.float64)
        # Halves first: the sum of two large entries may overflow where their mean does not.
        return 0.5 * written + 0.5 * written.T


def eigenvalues(matrix: Matrix) -> FloatArray:
    """Return all eigenvalues, increasing; an operator is written out."""
    array = dense(matrix)
    _check_finite(array)
    power = _scaling.exponent(_scaling.largest(array))
    with np.errstate(under="ignore"):
        values = linalg.eigvalsh(_scaling.shifted(array, -power), check_finite=False)
    return _scaling.restored(np.asarray(values), power, "A")


def solve(
    matrix: Matrix,
    k: int,
    which: str,
    tol: float,
    rng: np.random.Generator | int,
    *,
    vectors: bool = True,
) -> tuple[FloatArray, FloatArray]:
    """Return k eigenvalues and vectors; ``which`` is one of ARPACK's LA, SA, BE, LM.

    Without ``vectors`` the second array has no columns. A matrix of extreme size is brought near
    one by a power of two, which is exact.
    """
    generator = _validate.generator(rng)
    if isinstance(matrix, np.ndarray):
        power = _scaling.exponent(_scaling.largest(matrix))
        near: Matrix = _scaling.shifted(matrix, -power)
    else:
        power = _operator_exponent(matrix)
        near = _scaling.Shifted(matrix, -power) if power else matrix
    with np.errstate(under="ignore"):
        values, columns = _solve(near, k, which, tol, generator, vectors)
    return _scaling.restored(values, power, "A"), columns


def _operator_exponent(A: LinearOperator) -> int:
    """Return the exponent of A v for a fixed normal v: no draw of the caller's is used."""
    v = np.random.default_rng(0).standard_normal(A.shape[0])
    with np.errstate(all="ignore"):
        image = np.asarray(A @ v)
    _check_finite(image)
    return _scaling.exponent(_scaling.largest(image))


def _solve(
    matrix: Matrix,
    k: int,
    which: str,
    tol: float,
    generator: np.random.Generator,
    vectors: bool,
) -> tuple[FloatArray, FloatArray]:
    n = matrix.shape[0]
    small = PAIRS if vectors and isinstance(matrix, np.ndarray) else SMALL
    if n <= small or (4 * k >= n and n <= DENSE_LIMIT):
        return _by_dense(matrix, k, which, vectors)
    start = np.asarray(generator.standard_normal(n))
    image = np.asarray(matrix @ start)
    _check_finite(image)
    scale = float(np.linalg.norm(image) / np.linalg.norm(start))
    if scale == 0.0:
        # A random vector is outside the kernel of a nonzero matrix almost surely.
        return np.zeros(k), np.eye(n, k if vectors else 0)
    # ARPACK stops at an absolute residual once eigenvalues fall below 1e-11, hence the scaling.
    scaled = LinearOperator((n, n), matvec=lambda v: matrix @ v / scale, dtype=np.float64)
    # For the same reason an extreme eigenvalue must not be 0: it lies on its side of the mean.
    mean = float(start @ image) / (scale * float(start @ start))
    move = {"LA": 1.0 - mean, "SA": -1.0 - mean, "BE": -mean, "LM": 0.0}[which]
    moved = LinearOperator((n, n), matvec=lambda v: matrix @ v / scale + move * v, dtype=np.float64)
    try:
        found = eigsh(
            moved if move else scaled,
            k=k,
            which=which,
            v0=start,
            tol=tol,
            ncv=min(n, max(4 * k, 40)),
            maxiter=_RESTARTS,
            return_eigenvectors=vectors,
            rng=generator,
        )
        values, columns = found if vectors else (found, np.empty((n, 0)))
        values = values - move
        if vectors and k > (2 if which == "BE" else 1):
            values, columns = _deflation.complete(
                scaled.matvec, values, columns, which, tol, _RESTARTS, generator
            )
    except ArpackNoConvergence as error:
        if isinstance(matrix, LinearOperator) and n > DENSE_LIMIT:
            raise AccuracyError(
                f"Lanczos did not reach tol = {tol:g} in {_RESTARTS} restarts for n = {n}; "
                "raise tol or pass a dense array"
            ) from error
        return _by_dense(matrix, k, which, vectors)
    return scale * values, columns


def _by_dense(matrix: Matrix, k: int, which: str, vectors: bool) -> tuple[FloatArray, FloatArray]:
    array = dense(matrix)
    _check_finite(array)
    if vectors:
        values, columns = linalg.eigh(array, check_finite=False)
    else:
        values = linalg.eigvalsh(array, check_finite=False)
        columns = np.empty((len(array), len(array)))
    kept = _select(values, k, which)
    return values[kept], columns[:, kept if vectors else []]


def _select(values: FloatArray, k: int, which: str) -> np.ndarray:
    """Return the positions of the wanted ones among increasing eigenvalues."""
    n = len(values)
    if which == "LM":
        return np.asarray(np.argsort(-np.abs(values), kind="stable")[:k])
    low = {"LA": 0, "SA": k, "BE": k // 2}[which]
    return np.concatenate([np.arange(low), np.arange(n - (k - low), n)])


def _check_operator(A: LinearOperator, name: str, rng: np.random.Generator) -> None:
    _check_square(A.shape, name)
    if A.dtype is not None and np.dtype(A.dtype).kind == "c":
        raise TypeError(f"{name} must be real, got complex dtype {A.dtype}")
    u, v = rng.standard_normal((2, A.shape[0]))
    with np.errstate(all="ignore"):  # overflow is refused, underflow to zero is right
        image_u, image_v = np.asarray(A @ u), np.asarray(A @ v)
        _check_finite(image_u, name)
        _check_finite(image_v, name)
        size = _scaling.norm(u) * _size(A, v) + _scaling.norm(v) * _size(A, u)
        gap = abs(float(u @ image_v - v @ image_u))
    noise = A.shape[0] ** 2 * _SUBNORMAL
    if gap > 1e-8 * size + noise:
        raise ValueError(f"{name} must be symmetric, got |u.Av - v.Au| = {gap:.3g}")


def _size(A: LinearOperator, v: FloatArray) -> float:
    """Return |A v| plus the same of the operators A is a sum or multiple of.

    The rounding of a difference of nearly equal operators is that of its parts.
    """
    parts = [part for part in getattr(A, "args", ()) if isinstance(part, LinearOperator)]
    return _scaling.norm(np.asarray(A @ v)) + sum(_size(part, v) for part in parts)


def _check_square(shape: tuple[int, ...], name: str) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 0:
        raise ValueError(f"{name} must be square and not empty, got shape {shape}")


def _check_finite(array: FloatArray, name: str = "A") -> None:
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must be real, its product with a vector has dtype {array.dtype}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, its product with a vector is not")


def _asymmetry(matrix: FloatArray) -> float:
    blocks = range(0, len(matrix), _ROWS)
    return max(
        float(np.abs(matrix[i : i + _ROWS, i:] - matrix[i:, i : i + _ROWS].T).max()) for i in blocks
    )
