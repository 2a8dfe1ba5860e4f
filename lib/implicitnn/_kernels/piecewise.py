r"""Exact second moments of piecewise linear activations: bivariate normal probabilities.

With :math:`f(t) = f_0 + s_0 t + \sum_k J_k (\sigma_k (t - t_k))_+`, where sigma_k points away from
zero, every expectation is a sum of orthant probabilities; no term is larger than it has to be.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels.passes import compiled
from implicitnn.specs import Centred

FloatArray = NDArray[np.float64]

_SQRT_2PI = math.sqrt(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_NODES12, _WEIGHTS12 = np.polynomial.legendre.leggauss(12)
_NODES6, _WEIGHTS6 = np.polynomial.legendre.leggauss(6)


def corners(phi: Centred) -> FloatArray | None:
    """(f0, s0), then (t_k, J_k) for each kink, flat; None when phi is not piecewise linear."""
    kinks = np.array(phi.kinks)
    edges = np.concatenate([[-40.0 - 2 * np.abs(kinks).max(initial=0)], kinks])
    ends = np.concatenate([kinks, [40.0 + 2 * np.abs(kinks).max(initial=0)]])
    parts = np.linspace(0.03, 0.97, 9)
    inside = edges[:, None] + (ends - edges)[:, None] * parts
    slopes = phi.df(inside.ravel()).reshape(inside.shape)
    if (np.ptp(slopes, axis=1) > 1e-15 * np.abs(slopes).max()).any():
        return None
    slope = slopes[:, 0]
    start = float(phi(np.zeros(1))[0])
    middle = slope[int(np.searchsorted(kinks, 0.0, side="right"))]
    return np.concatenate([[start, middle], np.column_stack([kinks, np.diff(slope)]).ravel()])


@compiled
def upper(h: float) -> float:
    """P(x > h)."""
    return 0.5 * math.erfc(h * math.sqrt(0.5))


@compiled
def orthant(h: float, k: float, rho: float, gap: float) -> float:
    """P(x > h, y > k) for correlation rho; ``gap`` = 1 - |rho| without cancellation (Genz 2004)."""
    if abs(rho) < 0.925:
        angle = math.asin(rho)
        half = 0.5 * (h * h + k * k)
        total = 0.0
        nodes, weights = _NODES, _WEIGHTS
        if abs(rho) < 0.3:
            nodes, weights = _NODES6, _WEIGHTS6
        elif abs(rho) < 0.75:
            nodes, weights = _NODES12, _WEIGHTS12
        for i in range(nodes.size):
            s = math.sin(0.5 * angle * (1.0 + nodes[i]))
            total += weights[i] * math.exp((s * h * k - half) / (1.0 - s * s))
        return total * angle / (4.0 * math.pi) + upper(h) * upper(k)
    if rho < 0.0:
        k = -k
    hk = h * k
    total = 0.0
    if gap > 0.0:
        square = gap * (2.0 - gap)
        a = math.sqrt(square)
        bs = (h - k) ** 2
        c, d = (4.0 - hk) / 8.0, (12.0 - hk) / 16.0
        power = -0.5 * (bs / square + hk)
        if power > -200.0:
            total = (
                a
                * math.exp(power)
                * (1.0 - c * (bs - square) * (1.0 - d * bs / 5.0) / 3.0 + c * d * square**2 / 5.0)
            )
        if hk > -200.0:
            b = abs(h - k)
            total -= (
                math.exp(-0.5 * hk)
                * _SQRT_2PI
                * upper(b / a)
                * b
                * (1.0 - c * bs * (1.0 - d * bs / 5.0) / 3.0)
            )
        a *= 0.5
        for i in range(_NODES.size):
            xs = (a * (1.0 + _NODES[i])) ** 2
            rs = math.sqrt(1.0 - xs)
            power = -0.5 * (bs / xs + hk)
            if power > -200.0:
                total += (
                    a
                    * _WEIGHTS[i]
                    * math.exp(power)
                    * (
                        math.exp(-hk * xs / (2.0 * (1.0 + rs) ** 2)) / rs
                        - (1.0 + c * xs * (1.0 + d * xs))
                    )
                )
        total = -total / (2.0 * math.pi)
    if rho > 0.0:
        return total + upper(max(h, k))
    # P(x > h, y > -k') with y = -z: P(h < x) - P(x > h, z > k)
    return max(0.0, upper(h) - upper(max(h, k)) - total)


@compiled
def corner_pair(h: float, k: float, rho: float, gap: float, both: float) -> float:
    """E (x - h)_+ (y - k)_+ with ``both`` = P(x > h, y > k)."""
    square = gap * (2.0 - gap)
    if square <= 0.0:
        if rho < 0.0:
            # on y = -x the two half lines meet only where h < x < -k
            low, high = h, -k
            if high <= low:
                return 0.0
            mass = upper(low) - upper(high)
            dl, dh = (
                math.exp(-0.5 * low * low) / _SQRT_2PI,
                math.exp(-0.5 * high * high) / _SQRT_2PI,
            )
            first = dl - dh
            second = mass + low * dl - high * dh
            return -second - k * first + h * first + h * k * mass
        m = max(h, k)
        density = math.exp(-0.5 * m * m) / _SQRT_2PI
        return (1.0 + h * k) * upper(m) + (m - h - k) * density
    a = math.sqrt(square)
    # k - rho h and h - rho k, from the gap: they may nearly vanish
    over_h = (k - h) + gap * h if rho > 0.0 else (k + h) - gap * h
    over_k = (h - k) + gap * k if rho > 0.0 else (h + k) - gap * k
    joint = math.exp(-0.5 * (h * h + over_h**2 / square)) / (2.0 * math.pi)
    left = math.exp(-0.5 * h * h) / _SQRT_2PI * upper(over_h / a)
    right = math.exp(-0.5 * k * k) / _SQRT_2PI * upper(over_k / a)
    return (h * k + rho) * both - k * left - h * right + a * joint


@compiled
def _moments(c: FloatArray, s1: float, s2: float, rho: float, gap: float) -> tuple[float, float]:
    """E f(u) f(v) and E f'(u) f'(v); ``gap`` = 1 - |rho|."""
    f0, slope = c[0], c[1]
    value = f0 * f0 + slope * slope * s1 * s2 * rho
    product = slope * slope
    for i in range(2, c.size, 2):
        side1 = 1.0 if c[i] > 0.0 else -1.0
        h = abs(c[i]) / s1
        k = abs(c[i]) / s2
        qh, qk = upper(h), upper(k)
        mean_u = s1 * (math.exp(-0.5 * h * h) / _SQRT_2PI - h * qh)
        mean_v = s2 * (math.exp(-0.5 * k * k) / _SQRT_2PI - k * qk)
        value += c[i + 1] * (f0 * (mean_u + mean_v) + slope * s1 * s2 * rho * side1 * (qh + qk))
        product += c[i + 1] * slope * side1 * (qh + qk)
        for j in range(2, c.size, 2):
            side2 = 1.0 if c[j] > 0.0 else -1.0
            far = abs(c[j]) / s2
            r = rho * side1 * side2
            both = orthant(h, far, r, gap)
            value += c[i + 1] * c[j + 1] * s1 * s2 * corner_pair(h, far, r, gap, both)
            product += c[i + 1] * c[j + 1] * side1 * side2 * both
    return value, product


@compiled
def moments(
    c: FloatArray,
    v1: FloatArray,
    v2: FloatArray,
    gap: FloatArray,
    value: FloatArray,
    product: FloatArray,
) -> None:
    """Fill E f f and E f' f' for pairs (m); ``gap`` = 1 - rho in [0, 2]."""
    for m in range(v1.size):
        rho = 1.0 - gap[m]
        small = gap[m] if gap[m] < 1.0 else 2.0 - gap[m]
        value[m], product[m] = _moments(c, math.sqrt(v1[m]), math.sqrt(v2[m]), rho, small)
