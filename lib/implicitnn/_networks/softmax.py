r"""Penalised softmax regression as a smooth convex problem, in coordinates that whiten it.

.. math:: L(W) = \frac1n\sum_i \left(\log\sum_k e^{f_i^Tw_k} - f_i^Tw_{y_i}\right)
    + \frac\lambda2\|W\|_F^2 .

The Hessian at probabilities p lies near :math:`h F^TF/n + \lambda` with h the mean of p(1-p). With
its Cholesky factor L the unknown is :math:`V = L^TW`: few conjugate gradient steps are needed, and
the certificate is taken back in W.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, special

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
ROUNDS = 8


@dataclass(frozen=True)
class Minimum:
    """W (m, K), value of L there, certified gap, and number of evaluations of L."""

    weights: FloatArray
    objective: float
    gap: float
    evaluations: int


@dataclass
class _Problem:
    """L, its gradient and its Hessian products in V, for F with rows divided by L^T."""

    rows: FloatArray
    onehot: FloatArray
    factor: FloatArray
    penalty: float
    _point: FloatArray | None = field(init=False, default=None)
    _p: FloatArray = field(init=False)
    _value: float = field(init=False, default=0.0)
    _gradient: FloatArray = field(init=False)
    evaluations: int = field(init=False, default=0)

    def back(self, V: FloatArray) -> FloatArray:
        """L^{-T} V."""
        return np.asarray(linalg.solve_triangular(self.factor, V, lower=True, trans="T"))

    def _at(self, v: FloatArray) -> None:
        if self._point is not None and np.array_equal(v, self._point):
            return
        self.evaluations += 1
        n, k = self.onehot.shape
        V = v.reshape(-1, k)
        logits, W = self.rows @ V, self.back(V)
        norm = special.logsumexp(logits, axis=1, keepdims=True)
        self._p = np.exp(logits - norm)
        fit = (float(norm.sum()) - float(np.vdot(logits, self.onehot))) / n
        self._value = fit + 0.5 * self.penalty * float(np.vdot(W, W))
        ridge = linalg.solve_triangular(self.factor, W, lower=True)
        gradient = self.rows.T @ (self._p - self.onehot) / n + self.penalty * ridge
        self._gradient = gradient.ravel()
        self._point = v.copy()

    def value(self, v: FloatArray) -> float:
        self._at(v)
        return self._value

    def gradient(self, v: FloatArray) -> FloatArray:
        self._at(v)
        return self._gradient

    def product(self, v: FloatArray, d: FloatArray) -> FloatArray:
        """Hessian at v times d."""
        self._at(v)
        n, k = self.onehot.shape
        D = d.reshape(-1, k)
        change = self._p * (self.rows @ D)
        change -= self._p * change.sum(axis=1, keepdims=True)
        ridge = linalg.solve_triangular(self.factor, self.back(D), lower=True)
        return np.asarray((self.rows.T @ change / n + self.penalty * ridge).ravel())

    def gap(self, v: FloatArray) -> float:
        """|dL/dW|^2/(2 lambda), which bounds L - min L since L is lambda-strongly convex."""
        k = self.onehot.shape[1]
        gradient = self.factor @ self.gradient(v).reshape(-1, k)
        return float(np.vdot(gradient, gradient)) / (2.0 * self.penalty)


def minimise(
    F: FloatArray, onehot: FloatArray, gram: FloatArray, penalty: float, gap: float, W0: FloatArray
) -> Minimum:
    """Minimise L from W0 until the certified gap is reached, or rounding stops progress.

    gram is F^T F/n.
    """
    k = onehot.shape[1]
    p = special.softmax(F @ W0, axis=1)
    curvature = max(float((p * (1.0 - p)).mean()), 1e-6)
    factor = linalg.cholesky(curvature * gram + penalty * np.eye(len(gram)), lower=True)
    rows = np.asarray(linalg.solve_triangular(factor, F.T, lower=True).T)
    problem = _Problem(rows, onehot, factor, penalty)
    v = (factor.T @ W0).ravel()
    # |dL/dW| <= |L| |dL/dV|, and the Frobenius norm of L bounds its spectral one.
    tolerance = np.sqrt(2.0 * penalty * gap) / np.linalg.norm(factor)
    for _ in range(ROUNDS):
        found = optimize.minimize(
            problem.value,
            v,
            method="trust-ncg",
            jac=problem.gradient,
            hessp=problem.product,
            options={"gtol": tolerance, "maxiter": 200},
        )
        moved = not np.array_equal(found.x, v)
        v = found.x
        if problem.gap(v) <= gap or not moved:
            break
    W = problem.back(v.reshape(-1, k))
    return Minimum(W, problem.value(v), problem.gap(v), problem.evaluations)
