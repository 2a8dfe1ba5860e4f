"""A symmetric matrix held as a multiple of the identity plus two low-rank terms."""

from __future__ import annotations

import numpy as np
from scipy.sparse.linalg import LinearOperator

from implicitnn import _validate
from implicitnn._validate import FloatArray


class LowRankPlusDiagonal(LinearOperator):  # type: ignore[misc]
    r"""The operator :math:`d I + w X X^T + V C V^T`, never written out unless asked.

    Parameters
    ----------
    shift : float
        d.
    weight : float
        w.
    X : (n, p) array
    V : (n, m) array
    C : (m, m) array
        Symmetric.

    Raises
    ------
    ValueError
        The shapes do not fit or C is not symmetric.

    Notes
    -----
    Memory n (p + m); a product with a vector costs 4 n (p + m) operations. X and V are kept by
    reference.

    Examples
    --------
    >>> A = LowRankPlusDiagonal(1.0, 4.0, np.ones((3, 1)), np.eye(3)[:, :1], np.array([[9.0]]))
    >>> A.todense().tolist()
    [[14.0, 4.0, 4.0], [4.0, 5.0, 4.0], [4.0, 4.0, 5.0]]
    >>> (A @ np.array([1.0, 0.0, 0.0])).tolist(), A.trace(), A.diagonal().tolist()
    ([14.0, 4.0, 4.0], 24.0, [14.0, 5.0, 5.0])
    """

    def __init__(
        self, shift: float, weight: float, X: FloatArray, V: FloatArray, C: FloatArray
    ) -> None:
        self.shift = _validate.real(shift, "shift")
        self.weight = _validate.real(weight, "weight")
        self.X = _validate.real_array(X, "X", 2)
        self.V = _validate.real_array(V, "V", 2)
        self.C = _validate.real_array(C, "C", 2)
        n, m = len(self.X), self.V.shape[1]
        if len(self.V) != n:
            raise ValueError(f"X and V must have equally many rows, got {n} and {len(self.V)}")
        if self.C.shape != (m, m):
            raise ValueError(f"C must have shape ({m}, {m}) to fit V, got {self.C.shape}")
        with np.errstate(over="ignore", under="ignore"):
            gap = float(np.abs(self.C - self.C.T).max())
        if gap > 1e-10 * float(np.abs(self.C).max()):
            raise ValueError(f"C must be symmetric, got |C - C^T| up to {gap:.3g}")
        super().__init__(dtype=np.dtype(np.float64), shape=(n, n))

    def _matvec(self, v: FloatArray) -> FloatArray:
        return self._matmat(v.reshape(-1, 1)).ravel()

    @np.errstate(under="ignore")
    def _matmat(self, M: FloatArray) -> FloatArray:
        data = self.weight * (self.X @ (self.X.T @ M))
        return np.asarray(self.shift * M + data + self.V @ (self.C @ (self.V.T @ M)))

    def _adjoint(self) -> LowRankPlusDiagonal:
        return self

    def _transpose(self) -> LowRankPlusDiagonal:
        return self

    @np.errstate(under="ignore")
    def diagonal(self) -> FloatArray:
        """Return the diagonal, (n,)."""
        data = np.einsum("ij,ij->i", self.X, self.X)
        low = np.einsum("ij,ij->i", self.V @ self.C, self.V)
        return np.asarray(self.shift + self.weight * data + low)

    def trace(self) -> float:
        """Return the trace."""
        return float(self.diagonal().sum())

    @np.errstate(under="ignore")
    def todense(self) -> FloatArray:
        """Return the (n, n) array, symmetric to the last bit."""
        plus, minus = self._halves()
        # A product of an array with its own transpose is exactly symmetric; V C V^T is not.
        result = np.asarray(plus @ plus.T)
        if minus.size:
            result -= minus @ minus.T
        result[np.diag_indices_from(result)] += self.shift
        return result

    def _halves(self) -> tuple[FloatArray, FloatArray]:
        """Return P, M with P P^T - M M^T = w X X^T + V C V^T."""
        values, vectors = np.linalg.eigh(self.C)
        scaled = self.V @ (vectors * np.sqrt(np.abs(values)))
        data = np.sqrt(abs(self.weight)) * self.X
        up, down = [scaled[:, values > 0]], [scaled[:, values < 0]]
        (up if self.weight >= 0 else down).append(data)
        return np.concatenate(up, axis=1), np.concatenate(down, axis=1)
