r"""Penalised softmax regression as a smooth convex problem: Newton steps by conjugate gradients.

.. math:: L(W) = \frac1n\sum_i \left(\log\sum_k e^{f_i^Tw_k} - f_i^Tw_{y_i}\right)
    + \frac\lambda2\|W\|_F^2 .

The Hessian at probabilities p lies near :math:`h F^TF/n + \lambda` with h the mean of p(1-p): its
Cholesky factor preconditions the conjugate gradients. Values, gradients and with them the
certificate are in float64, whatever the precision of the features; the products with F of a Hessian
are in the precision of the features, since an inexact Newton step is corrected by the next
gradient. Weights are held as (K, m).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from implicitnn._networks import thin as _thin
from implicitnn._networks.ridge import Moments, cholesky

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Solve = Callable[[FloatArray], FloatArray]
STEPS, PRODUCTS, HALVINGS = 100, 500, 40
# Steps in a row that lower neither L nor its gradient, after which rounding is blamed.
LOST = 3
# Rows whose Hessian products are summed in the features' precision.
CHUNK = 4096
EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Minimum:
    """W (m, K), value of L there, certified gap, and passes over the data that were needed."""

    weights: FloatArray
    objective: float
    gap: float
    passes: int


@dataclass
class _Problem:
    """L on the named rows of F: value, gradient, and Hessian products at the last gradient."""

    F: NDArray[np.floating]
    labels: IntArray
    rows: IntArray
    penalty: float
    classes: int
    passes: int = 0

    def __post_init__(self) -> None:
        # In float64 whatever the features: p(1 - p) is lost where p is rounded to one.
        self._p = np.empty((self.classes, len(self.rows)))

    def at(self, W: FloatArray) -> tuple[float, FloatArray]:
        """L and its gradient."""
        self.passes += 1
        gradient = np.zeros_like(W)
        total = _thin.gradient(self.F, self.labels, self.rows, W, self._p, gradient)
        gradient /= len(self.rows)
        gradient += self.penalty * W
        return total / len(self.rows) + 0.5 * self.penalty * float(np.vdot(W, W)), gradient

    def product(self, D: FloatArray) -> FloatArray:
        """Hessian times D."""
        self.passes += 1
        narrow, total = D.astype(self.F.dtype), np.zeros_like(D)
        for start in range(0, len(self.rows), CHUNK):
            last, own = min(start + CHUNK, len(self.rows)), np.zeros_like(narrow)
            _thin.curvature(self.F, self.rows, self._p, start, last, narrow, own)
            total += own
        return np.asarray(total / len(self.rows) + self.penalty * D)

    def spread(self) -> float:
        """Mean of p(1 - p)."""
        return max(float((self._p * (1.0 - self._p)).mean()), 1e-6)


def minimise(
    F: NDArray[np.floating],
    labels: IntArray,
    rows: IntArray,
    moments: Moments,
    penalty: float,
    gap: float,
    W0: FloatArray,
) -> Minimum:
    """Minimise L over the named rows from W0 (m, K).

    Ends when the certified gap is reached, or rounding stops progress.
    """
    problem = _Problem(F, labels, rows, penalty, W0.shape[1])
    W = np.ascontiguousarray(W0.T)
    value, gradient = problem.at(W)
    matrix = moments.shifted(problem.spread() / moments.n, penalty)
    factor = cholesky(matrix, penalty)

    def solve(R: FloatArray) -> FloatArray:
        return np.asarray(linalg.cho_solve(factor, R.T, check_finite=False).T)

    first, floor = float(np.linalg.norm(gradient)), float(np.finfo(F.dtype).eps) ** 0.5
    best, lost = (W, value, _bound(gradient, penalty)), 0
    for _ in range(STEPS):
        if best[2] <= gap or lost == LOST:
            break
        # Tighter as the minimum nears, but no tighter than the certificate asks for, nor than
        # products in this precision can tell: beyond it conjugate gradients wander off.
        share = max(floor, min(0.25, (float(np.linalg.norm(gradient)) / first) ** 0.5))
        step = _newton(problem.product, solve, gradient, share, 0.5 * (penalty * gap) ** 0.5)
        found = _search(problem, W, step, value, float(np.vdot(gradient, step)))
        if found is None:
            break
        W, value, gradient = found
        bound = _bound(gradient, penalty)
        if value < best[1] - 10.0 * EPS * abs(value) or bound < best[2]:
            best, lost = (W, value, bound), 0
        else:
            lost += 1
    W, value, bound = best
    return Minimum(np.ascontiguousarray(W.T), value, bound, problem.passes)


def _bound(gradient: FloatArray, penalty: float) -> float:
    return float(np.vdot(gradient, gradient)) / (2.0 * penalty)


def _newton(
    product: Solve, solve: Solve, gradient: FloatArray, share: float, enough: float
) -> FloatArray:
    """Preconditioned conjugate gradients for H D = -gradient.

    Until the residual is a share of the gradient in the norm of the preconditioner's inverse, or
    small enough in the Euclidean one.
    """
    D, R = np.zeros_like(gradient), -gradient
    Z = solve(R)
    P, rho = Z.copy(), float(np.vdot(R, Z))
    goal = share**2 * rho
    for _ in range(PRODUCTS):
        HP = product(P)
        curvature = float(np.vdot(P, HP))
        if not curvature > 0.0:  # rounding: the Hessian is positive
            break
        length = rho / curvature
        D += length * P
        R -= length * HP
        if float(np.linalg.norm(R)) <= enough:
            break
        Z = solve(R)
        rho, before = float(np.vdot(R, Z)), rho
        if rho <= goal:
            break
        P *= rho / before
        P += Z
    return D


def _search(
    problem: _Problem, W: FloatArray, step: FloatArray, value: float, slope: float
) -> tuple[FloatArray, float, FloatArray] | None:
    """First of the lengths 1, 1/2, 1/4, ... that lowers L enough, or None."""
    if slope >= 0.0:
        return None
    length = 1.0
    for _ in range(HALVINGS):
        point = W + length * step
        new, gradient = problem.at(point)
        if new <= value + 1e-4 * length * slope:
            return point, new, gradient
        # Differences of L are rounding here; the gradient still tells.
        if -length * slope < 1e4 * EPS * abs(value) and -float(np.vdot(gradient, step)) >= 0:
            return point, new, gradient
        length *= 0.5
    return None
