"""What is timed: the floor, the library, and two peers for the centred ReLU network."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from implicitnn import kernels
from implicitnn.specs import DEQ

FloatArray = NDArray[np.float64]


def floor(X: FloatArray, out: FloatArray) -> None:
    """All inner products, and one pass over them."""
    np.matmul(X, X.T, out=out)
    np.multiply(out, 1.0000001, out=out)


def library(spec: DEQ, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """CK and NTK of the library."""
    return kernels.ck_and_ntk(spec, X)


def _relu_variance(spec: DEQ, q: FloatArray) -> FloatArray:
    c, a2 = spec.offset, spec.sigma_a2
    b = a2 * c / math.sqrt(2.0 * math.pi)
    d = spec.sigma_b2 * q + a2 * c * c
    return np.asarray((-b + np.sqrt(b * b + (1.0 - 0.5 * a2) * d)) / (1.0 - 0.5 * a2)) ** 2


def picard(spec: DEQ, X: FloatArray, tol: float = 1e-10) -> tuple[FloatArray, FloatArray]:
    """numpy: the fixed-point equation of a centred ReLU network iterated on the whole matrix."""
    S = X @ X.T
    v = _relu_variance(spec, np.diag(S))
    root = np.sqrt(v)
    size = np.outer(root, root)
    c, a2 = spec.offset, spec.sigma_a2
    mean = c * root / math.sqrt(2.0 * math.pi)
    shift = c * c - mean[:, None] - mean
    L = spec.sigma_b2 * S
    while True:
        rho = np.clip(L / size, -1.0, 1.0)
        angle = np.arccos(rho)
        G = size * (np.sqrt(1.0 - rho * rho) + (np.pi - angle) * rho) / (2.0 * np.pi) + shift
        new = a2 * G + spec.sigma_b2 * S
        change = float(np.abs(new - L).max())
        L = new
        if change < tol:
            return G, G / (1.0 - a2 * (np.pi - angle) / (2.0 * np.pi))


@njit(cache=True, parallel=False)
def _newton(
    S: FloatArray, root: FloatArray, a2: float, b2: float, c: float, G: FloatArray, K: FloatArray
) -> None:
    two_pi = 2.0 * math.pi
    for i in range(S.shape[0]):
        for j in range(S.shape[0]):
            size = root[i] * root[j]
            shift = c * c - c * (root[i] + root[j]) / math.sqrt(two_pi)
            drive = (b2 * S[i, j] + a2 * shift) / size
            rho = min(1.0, max(-1.0, drive))
            value, dot = 0.0, 0.0
            for _ in range(20):
                angle = math.acos(rho)
                dot = (math.pi - angle) / two_pi
                value = math.sqrt(1.0 - rho * rho) / two_pi + dot * rho
                step = (a2 * value + drive - rho) / (1.0 - a2 * dot)
                rho = min(1.0, max(-1.0, rho + step))
                if abs(step) < 1e-11:
                    break
            G[i, j] = size * value + shift
            K[i, j] = G[i, j] / (1.0 - a2 * dot)


def newton(spec: DEQ, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """numba: Newton's method entry by entry."""
    S = X @ X.T
    root = np.sqrt(_relu_variance(spec, np.diag(S)))
    G, K = np.empty_like(S), np.empty_like(S)
    _newton(S, root, spec.sigma_a2, spec.sigma_b2, spec.offset, G, K)
    return G, K
