"""Operator norms, smallest singular values, projection on a ball of the operator norm."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from implicitnn._validate import FloatArray, real_array

# Below this size a dense decomposition is faster than Lanczos.
DENSE = 128
# Relative error of the norms: closer to 1 a rate cannot be told from 1.
_ERROR = 1e-12
# Below this share of the norm a multiple of the identity is not worth a second norm.
_WORTH = 0.1


def operator_norm(A: FloatArray) -> float:
    """Return the largest singular value, to about 1e-12 relative.

    Examples
    --------
    >>> round(operator_norm(np.diag([3.0, -4.0])), 12)
    4.0
    """
    return top_triple(real_array(A, "A", 2))[1]


def contracts(rate: float) -> bool:
    """Return whether a rate gamma ||A|| is below 1 by more than the error of the norm.

    Examples
    --------
    >>> contracts(1.0 - 1e-9), contracts(1.0 - 1e-15)
    (True, False)
    """
    return rate < 1.0 - _ERROR


def top_triple(A: FloatArray) -> tuple[FloatArray, float, FloatArray]:
    """Return (u, s, v), the largest singular value with its unit vectors, A v = s u."""
    if min(A.shape) <= DENSE:
        return _dense_triple(A)
    top = float(np.abs(A).max())
    if top == 0.0:
        return np.zeros(A.shape[0]), 0.0, np.zeros(A.shape[1])
    # The tolerance of Lanczos is absolute for eigenvalues below 1e-11, and squares overflow. A
    # power of two changes no digit.
    scale = math.ldexp(1.0, math.frexp(top)[1] - 1)
    B = A / scale
    size = A.shape[1]
    square = LinearOperator((size, size), matvec=lambda v: B.T @ (B @ v), dtype=np.float64)
    # Where A is a multiple of an orthogonal matrix every vector is an eigenvector: a fixed random
    # start has a part in all of them.
    first = np.random.default_rng(0).standard_normal(size)
    try:
        _, vectors = eigsh(
            square, k=1, which="LA", v0=first, tol=1e-13, rng=np.random.default_rng(0)
        )
    except ArpackError:
        return _dense_triple(A)
    v = vectors[:, 0]
    image = B @ v
    s = float(np.linalg.norm(image))
    return (image / s if s > 0 else image), s * scale, v


def _dense_triple(A: FloatArray) -> tuple[FloatArray, float, FloatArray]:
    u, s, vt = np.linalg.svd(A, full_matrices=False)
    return u[:, 0], float(s[0]), vt[0]


@dataclass(frozen=True)
class Splitting:
    r"""A = ``shift`` I + E with the operator norm ``distance`` of E."""

    shift: float
    distance: float

    def rate(self, gamma: float, moved: float = 0.0) -> float:
        r"""Return :math:`\gamma\lVert E\rVert/(1 - \gamma c)`, c the shift.

        ``moved`` bounds how far A has gone, in operator norm, since the splitting was made.
        """
        return gamma * (self.distance + moved) / (1.0 - gamma * self.shift)


def splitting(A: FloatArray, norm: float, gamma: float) -> Splitting:
    r"""Return the splitting of A, of the given norm, that contracts more: c = tr A/m, or c = 0.

    It needs :math:`\gamma\lVert A\rVert < 1`, which implies :math:`\gamma c < 1`.

    Examples
    --------
    >>> splitting(np.eye(3), 1.0, 0.5)
    Splitting(shift=1.0, distance=0.0)
    >>> splitting(np.array([[0.0, 1.0], [1.0, 0.0]]), 1.0, 0.5)
    Splitting(shift=0.0, distance=1.0)
    """
    plain = Splitting(0.0, norm)
    mean = float(np.trace(A)) / len(A)
    if abs(mean) < _WORTH * norm or not contracts(gamma * max(norm, abs(mean))):
        return plain
    rest = A.copy()
    rest.flat[:: len(A) + 1] -= mean
    split = Splitting(mean, operator_norm(rest))
    return split if split.rate(gamma) < plain.rate(gamma) else plain


def smallest_singular_value(Z: FloatArray) -> float:
    r"""Return :math:`\sigma_{\min}` of Z, (N, m), in the sense :math:`\min_{|u|=1}|Z^T u|`.

    It is 0 when N > m, and 0 when it cannot be told from 0 in double precision.

    Examples
    --------
    >>> round(smallest_singular_value(np.diag([2.0, 3.0])), 12)
    2.0
    >>> smallest_singular_value(np.ones((3, 2)))
    0.0
    """
    Z = real_array(Z, "Z", 2)
    if Z.shape[0] > Z.shape[1]:
        return 0.0
    values = np.linalg.svd(Z, compute_uv=False)
    floor = np.finfo(float).eps * max(Z.shape) * float(values[0])
    return float(values[-1]) if values[-1] > floor else 0.0


def project(A: FloatArray, radius: float, limit: int = 20) -> FloatArray:
    r"""Return the nearest matrix in Frobenius norm with :math:`\lVert A\rVert\le` radius.

    It clips the singular values; few are above the radius after a step of descent, so they are
    taken one by one, and all at once when they are many.

    Examples
    --------
    >>> np.round(project(np.diag([3.0, 0.5]), 1.0), 12).tolist()
    [[1.0, 0.0], [0.0, 0.5]]
    """
    result = A.copy()
    for _ in range(limit):
        u, s, v = top_triple(result)
        if s <= radius * (1 + 1e-12):
            return result
        result -= (s - radius) * np.outer(u, v)
    left, values, right = np.linalg.svd(A, full_matrices=False)
    return np.asarray((left * np.minimum(values, radius)) @ right)
