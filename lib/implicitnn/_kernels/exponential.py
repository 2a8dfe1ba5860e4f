r"""Exact second moments of ELU: f(t) = t for t > 0, :math:`e^t - 1` for t < 0.

A factor :math:`e^v` shifts the means of (u, v) by their covariances with v, so that every
expectation is an orthant probability, or a first moment on an orthant.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels.passes import compiled
from implicitnn._kernels.piecewise import corner_pair, orthant, upper

FloatArray = NDArray[np.float64]

_SQRT_2PI = math.sqrt(2.0 * math.pi)
# beyond this variance the factors exp(v/2) cost more digits than there are
LARGEST = 16.0
SMALLEST = 1e-3


@compiled
def _above(h: float, k: float, rho: float, gap: float) -> float:
    """E[(x - h)_+; y > k] for correlation rho, ``gap`` = 1 - |rho|."""
    both = orthant(h, k, rho, gap)
    a = math.sqrt(max(gap * (2.0 - gap), 1e-300))
    over_h = (k - h) + gap * h if rho > 0.0 else (k + h) - gap * h
    over_k = (h - k) + gap * k if rho > 0.0 else (h + k) - gap * k
    left = math.exp(-0.5 * h * h) / _SQRT_2PI * upper(over_h / a)
    right = math.exp(-0.5 * k * k) / _SQRT_2PI * upper(over_k / a)
    return left + rho * right - h * both


@compiled
def _pair(s1: float, s2: float, rho: float, gap: float) -> tuple[float, float]:
    """E f(u) f(v) and E f'(u) f'(v)."""
    e1, e2 = math.exp(0.5 * s1 * s1), math.exp(0.5 * s2 * s2)
    same = orthant(0.0, 0.0, rho, gap)
    down = math.exp(0.5 * (s1 * s1 + s2 * s2) + rho * s1 * s2) * orthant(
        s1 + rho * s2, s2 + rho * s1, rho, gap
    )
    mixed = e2 * orthant(-rho * s2, s2, -rho, gap) + e1 * orthant(-rho * s1, s1, -rho, gap)
    value = s1 * s2 * corner_pair(0.0, 0.0, rho, gap, same)
    flat = _above(0.0, 0.0, -rho, gap)
    value += s1 * (e2 * _above(-rho * s2, s2, -rho, gap) - flat)
    value += s2 * (e1 * _above(-rho * s1, s1, -rho, gap) - flat)
    value += down + same
    value -= e1 * orthant(s1, rho * s1, rho, gap) + e2 * orthant(rho * s2, s2, rho, gap)
    return value, same + mixed + down


@compiled
def moments(
    v1: FloatArray, v2: FloatArray, gap: FloatArray, value: FloatArray, product: FloatArray
) -> None:
    """Fill E f f and E f' f' for pairs (m); ``gap`` = 1 - rho in [0, 2]."""
    for m in range(v1.size):
        small = gap[m] if gap[m] < 1.0 else 2.0 - gap[m]
        s1, s2 = math.sqrt(v1[m]), math.sqrt(v2[m])
        value[m], product[m] = _pair(s1, s2, 1.0 - gap[m], small)


def mean(variance: FloatArray) -> FloatArray:
    """E f(sqrt(v) xi)."""
    from scipy.special import ndtr

    s = np.sqrt(variance)
    return np.asarray(s / _SQRT_2PI + np.exp(0.5 * variance) * ndtr(-s) - 0.5)
