"""Spectra of symmetric matrices: norms by Lanczos, extreme pairs, alignment, histograms.

A matrix is a dense symmetric array or a symmetric `scipy.sparse.linalg.LinearOperator`. No routine
forms an n x n array from an operator unless it says so, and none takes a singular value
decomposition of a kernel.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from implicitnn import _validate
from implicitnn._rmt import lanczos as _lanczos
from implicitnn._rmt import scaling as _scaling
from implicitnn._rmt.histogram import Histogram, histogram
from implicitnn._validate import FloatArray

__all__ = [
    "Eigenpairs",
    "Histogram",
    "align_signs",
    "alignment",
    "difference",
    "eigenvalues",
    "extreme_eigenpairs",
    "histogram",
    "operator_norm",
    "subspace_alignment",
]

WHICH = ("largest", "smallest", "both", "magnitude")


class Eigenpairs(NamedTuple):
    """Eigenvalues (k,) and unit eigenvectors in columns (n, k)."""

    values: FloatArray
    vectors: FloatArray


def difference(A: ArrayLike | LinearOperator, B: ArrayLike | LinearOperator) -> LinearOperator:
    r"""Return A - B as an operator; nothing of size n x n is formed.

    Parameters
    ----------
    A, B : (n, n) array or LinearOperator
        Symmetric.

    Raises
    ------
    ValueError
        The shapes differ, or an array is not square, symmetric and finite.

    Examples
    --------
    >>> operator_norm(difference(np.diag([3.0, 1.0]), np.eye(2)))
    2.0
    """
    left, right = _lanczos.checked(A, "A"), _lanczos.checked(B, "B")
    if left.shape != right.shape:
        raise ValueError(f"A and B must have the same shape, got {left.shape} and {right.shape}")
    return aslinearoperator(left) - aslinearoperator(right)


def operator_norm(
    A: ArrayLike | LinearOperator, *, tol: float = 1e-8, rng: np.random.Generator | int = 0
) -> float:
    r"""Return the spectral norm :math:`\max_k |\lambda_k(A)|` of a symmetric matrix.

    Parameters
    ----------
    A : (n, n) array or LinearOperator
        Symmetric. For a difference of two kernels see `difference`.
    tol : float
        Relative residual at which Lanczos stops. The error of the norm is of the order of its
        square when the top eigenvalue is isolated, of ``tol`` itself in the worst case.
    rng : numpy.random.Generator or int
        Source of the start vector; equal seeds give equal results.

    Returns
    -------
    float
        The norm; exact zero for a zero matrix.

    Raises
    ------
    ValueError
        A is not square, not symmetric, or not finite, or its spectrum leaves float64.
    AccuracyError
        Lanczos did not converge and the operator is too large to write out.

    Notes
    -----
    n <= 64 is solved densely. So is an array, or an operator with n <= 4096, on which Lanczos does
    not converge.

    Examples
    --------
    >>> operator_norm(np.diag([1.0, -3.0, 2.0]))
    3.0
    """
    tol = _validate.positive(tol, "tol")
    matrix = _lanczos.checked(A, "A", rng)
    values, _ = _lanczos.solve(matrix, 1, "LM", tol, rng, vectors=False)
    return float(abs(values[0]))


def eigenvalues(A: ArrayLike | LinearOperator) -> FloatArray:
    """Return all eigenvalues in increasing order, (n,).

    Parameters
    ----------
    A : (n, n) array or LinearOperator
        Symmetric. An operator is written out: n^2 doubles.

    Raises
    ------
    ValueError
        A is not square, not symmetric, or not finite, or its spectrum leaves float64.

    Examples
    --------
    >>> eigenvalues(np.array([[0.0, 1.0], [1.0, 0.0]])).tolist()
    [-1.0, 1.0]
    """
    return _lanczos.eigenvalues(_lanczos.checked(A, "A"))


def extreme_eigenpairs(
    A: ArrayLike | LinearOperator,
    k: int,
    which: str = "largest",
    *,
    tol: float = 1e-10,
    rng: np.random.Generator | int = 0,
) -> Eigenpairs:
    r"""Return k extreme eigenvalues, each as often as its multiplicity, and their eigenvectors.

    Parameters
    ----------
    A : (n, n) array or LinearOperator
        Symmetric.
    k : int
        Number of pairs, 1 .. n. For ``"both"`` from each end, 2 k <= n.
    which : {"largest", "smallest", "both", "magnitude"}
        ``"largest"``: decreasing order. ``"smallest"``: increasing. ``"both"``: the k smallest
        and the k largest, increasing. ``"magnitude"``: decreasing absolute value.
    tol : float
        Relative residual at which Lanczos stops.
    rng : numpy.random.Generator or int
        Source of the start vector.

    Returns
    -------
    Eigenpairs
        values (k,), vectors (n, k). The entry of largest absolute value of each vector is
        positive.

    Raises
    ------
    ValueError
        k out of range, unknown ``which``, A not square, symmetric and finite, or its spectrum
        leaves float64.
    AccuracyError
        Lanczos did not converge and the operator is too large to write out.

    Notes
    -----
    n <= 64, and an array with n <= 256, is solved densely. Lanczos alone finds one vector of each
    eigenspace, so it is started again at random in the complement of what it found, until nothing
    is left there that lies beyond the k-th value by more than ``tol`` of the largest.

    Examples
    --------
    >>> pairs = extreme_eigenpairs(np.diag([1.0, -3.0, 2.0]), 2)
    >>> pairs.values.tolist(), pairs.vectors[:, 0].tolist()
    ([2.0, 1.0], [0.0, 0.0, 1.0])
    """
    which = _validate.one_of(which, "which", WHICH)
    matrix = _lanczos.checked(A, "A", rng)
    n = matrix.shape[0]
    total = _validate.integer(k, "k", 1) * (2 if which == "both" else 1)
    if total > n:
        raise ValueError(f"k = {k} with which = {which!r} asks for {total} of {n} eigenvalues")
    arpack = {"largest": "LA", "smallest": "SA", "both": "BE", "magnitude": "LM"}[which]
    values, vectors = _lanczos.solve(matrix, total, arpack, _validate.positive(tol, "tol"), rng)
    order = _order(values, which)
    return Eigenpairs(values[order], _fix_signs(vectors[:, order]))


def alignment(U: ArrayLike, V: ArrayLike) -> FloatArray:
    r"""Return :math:`|\cos(u_k, v_k)|` for matching columns: (k,), or () for two vectors.

    Parameters
    ----------
    U, V : (n, k) or (n,) array
        Vectors in columns, of any nonzero length.

    Raises
    ------
    ValueError
        The shapes differ, an entry is not finite, a column is zero.

    Examples
    --------
    >>> float(alignment([1.0, 0.0], [-2.0, 0.0]))
    1.0
    """
    left, right = _unit(U, "U"), _unit(V, "V")
    if left.shape != right.shape:
        raise ValueError(f"U and V must have the same shape, got {left.shape} and {right.shape}")
    with np.errstate(under="ignore"):
        return np.asarray(np.minimum(np.abs((left * right).sum(axis=0)), 1.0))


def subspace_alignment(U: ArrayLike, V: ArrayLike) -> FloatArray:
    r"""Return the cosines of the principal angles between two column spaces, decreasing.

    They do not change when a basis is rotated, which single eigenvectors of nearly equal
    eigenvalues freely are.

    Parameters
    ----------
    U : (n, k) or (n,) array
    V : (n, m) or (n,) array
        Linearly independent columns.

    Returns
    -------
    (min(k, m),) array

    Raises
    ------
    ValueError
        The numbers of rows differ, or the columns are dependent.

    Examples
    --------
    >>> plane = np.eye(3)[:, :2]
    >>> subspace_alignment(plane, plane @ [[0.6, -0.8], [0.8, 0.6]]).round(12).tolist()
    [1.0, 1.0]
    """
    left, right = _basis(U, "U"), _basis(V, "V")
    if len(left) != len(right):
        raise ValueError(f"U and V must have equally many rows, got {len(left)} and {len(right)}")
    with np.errstate(under="ignore"):
        cosines = linalg.svdvals(left.T @ right)
    return np.asarray(np.minimum(cosines, 1.0))


def align_signs(U: ArrayLike, reference: ArrayLike) -> FloatArray:
    """Return U with each column flipped to a nonnegative product with its reference column.

    Parameters
    ----------
    U, reference : (n, k) or (n,) array

    Raises
    ------
    ValueError
        The shapes differ or an entry is not finite.

    Examples
    --------
    >>> align_signs([1.0, -2.0], [0.0, 1.0]).tolist()
    [-1.0, 2.0]
    """
    left = _vectors(U, "U")
    right = _vectors(reference, "reference")
    if left.shape != right.shape:
        raise ValueError(
            f"U and reference must have the same shape, got {left.shape} and {right.shape}"
        )
    with np.errstate(under="ignore"):
        products = (_near_one(left) * _near_one(right)).sum(axis=0)
    return np.asarray(np.where(products < 0, -left, left))


def _order(values: FloatArray, which: str) -> np.ndarray:
    keys = {"largest": -values, "magnitude": -np.abs(values)}
    return np.argsort(keys.get(which, values), kind="stable")


def _fix_signs(vectors: FloatArray) -> FloatArray:
    """Flip each column so that its entry of largest absolute value is positive.

    Entries equal to the largest up to rounding count as largest; the first one decides.
    """
    size = np.abs(vectors)
    first = np.argmax(size >= size.max(axis=0) * (1 - 1e-8), axis=0)
    return np.asarray(vectors * np.sign(vectors[first, np.arange(vectors.shape[1])]))


def _vectors(value: ArrayLike, name: str) -> FloatArray:
    array = _validate.as_array(value, name)
    return _validate.real_array(array, name, 1 if array.ndim == 1 else 2)


def _near_one(vectors: FloatArray) -> FloatArray:
    """Scale each column of extreme size by a power of two, so that its square is finite."""
    sizes = np.atleast_1d(np.maximum(vectors.max(axis=0), -vectors.min(axis=0)))
    powers = np.array([_scaling.exponent(float(size)) for size in sizes])
    if not powers.any():
        return vectors
    columns = vectors.reshape(len(vectors), -1).T
    shifted = [_scaling.shifted(c, -int(k)) for c, k in zip(columns, powers, strict=True)]
    return np.stack(shifted, axis=1).reshape(vectors.shape)


def _unit(value: ArrayLike, name: str) -> FloatArray:
    vectors = _near_one(_vectors(value, name))
    with np.errstate(under="ignore"):
        norms = np.linalg.norm(vectors, axis=0)
        if (norms == 0).any():
            raise ValueError(f"{name} must not have a zero column")
        return np.asarray(vectors / norms)


def _basis(value: ArrayLike, name: str) -> FloatArray:
    vectors = _unit(value, name)
    vectors = vectors.reshape(len(vectors), -1)
    if vectors.shape[1] > len(vectors) or np.linalg.matrix_rank(vectors) < vectors.shape[1]:
        raise ValueError(f"{name} must have linearly independent columns")
    return np.asarray(linalg.qr(vectors, mode="economic")[0])
