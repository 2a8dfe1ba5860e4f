r"""Closed forms of E[f(u) g(v)] for centred jointly Gaussian (u, v).

All are elementwise in (var_u, var_v, cov) and keep their accuracy when the correlation is near one:
angles come from atan2 of the determinant, which is computed without cancellation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate

FloatArray = NDArray[np.float64]

_SMALL_ANGLE = 0.25


def relu_product(var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike) -> FloatArray:
    r"""E relu(u) relu(v): the arc-cosine kernel of degree one.

    :math:`(\sin\theta + (\pi - \theta)\cos\theta)\,(var_u var_v)^{1/2} / (2\pi)` with
    :math:`\cos\theta = cov / (var_u var_v)^{1/2}` (Cho and Saul 2009). Relative accuracy holds near
    :math:`\theta = \pi` as well, where the bracket vanishes.

    Parameters
    ----------
    var_u, var_v, cov : numbers or arrays that broadcast.

    Raises
    ------
    ValueError : an impossible covariance.

    Examples
    --------
    >>> relu_product(1.0, 4.0, [-2.0, 0.0, 2.0]).round(12).tolist()
    [0.0, 0.318309886184, 1.0]
    """
    root = np.sqrt(determinant(var_u, var_v, cov))
    cov = np.asarray(cov, dtype=np.float64)
    opening = np.arctan2(root, -cov)
    plain = root + opening * cov
    small = np.minimum(opening, _SMALL_ANGLE)
    series = np.hypot(root, cov) * _sine_minus_cosine(small)
    return np.asarray(np.where(opening < _SMALL_ANGLE, series, plain) / (2.0 * math.pi))


def _sine_minus_cosine(d: FloatArray) -> FloatArray:
    r""":math:`\sin d - d \cos d = d^3/3 - d^5/30 + \dots` for small d, without cancellation."""
    square = d * d
    total = np.zeros_like(d)
    for k in range(7, 0, -1):
        total = square * total + (-1) ** (k + 1) * 2 * k / math.factorial(2 * k + 1)
    return d * square * total


def step_product(var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike) -> FloatArray:
    r"""P(u > 0, v > 0): the arc-cosine kernel of degree zero, :math:`(\pi - \theta)/(2\pi)`.

    Zero where a variance is zero, because the step is 0 at 0.

    Examples
    --------
    >>> step_product(1.0, 1.0, [-1.0, 0.0, 1.0]).tolist()
    [0.0, 0.25, 0.5]
    """
    root = np.sqrt(determinant(var_u, var_v, cov))
    opening = np.arctan2(root, -np.asarray(cov, dtype=np.float64))
    degenerate = (np.asarray(var_u) == 0) | (np.asarray(var_v) == 0)
    return np.where(degenerate, 0.0, opening / (2.0 * math.pi))


def leaky_relu_product(
    slope: float, var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike
) -> FloatArray:
    r"""E f(u) f(v) for f(t) = t (t > 0), slope * t (t < 0).

    :math:`(1 + s^2) R(cov) - 2 s R(-cov)` with R the :func:`relu_product`.

    Examples
    --------
    >>> leaky_relu_product(1.0, 1.0, 1.0, [-0.5, 0.25]).round(12).tolist()
    [-0.5, 0.25]
    """
    s = _validate.real(slope, "slope")
    cov = np.asarray(cov, dtype=np.float64)
    return (1.0 + s * s) * relu_product(var_u, var_v, cov) - 2.0 * s * relu_product(
        var_u, var_v, -cov
    )


def leaky_step_product(
    slope: float, var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike
) -> FloatArray:
    r"""E f'(u) f'(v) for the leaky ReLU with the given slope.

    :math:`(1 + s^2) S(cov) + 2 s S(-cov)` with S the :func:`step_product`.

    Examples
    --------
    >>> leaky_step_product(0.5, 1.0, 1.0, [0.0, 1.0]).tolist()
    [0.5625, 0.625]
    """
    s = _validate.real(slope, "slope")
    cov = np.asarray(cov, dtype=np.float64)
    return (1.0 + s * s) * step_product(var_u, var_v, cov) + 2.0 * s * step_product(
        var_u, var_v, -cov
    )


def erf_product(var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike) -> FloatArray:
    r"""E erf(u) erf(v) = :math:`(2/\pi) \arcsin(2 cov / ((1 + 2 var_u)(1 + 2 var_v))^{1/2})`.

    (Williams 1997.) The arcsine is taken as an atan2, accurate for large variances too.

    Examples
    --------
    >>> round(float(erf_product(0.5, 0.5, 0.5)), 12)
    0.333333333333
    """
    return (
        2.0
        / math.pi
        * np.arctan2(2.0 * np.asarray(cov, dtype=np.float64), _erf_root(var_u, var_v, cov))
    )


def derf_product(var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike) -> FloatArray:
    r"""E erf'(u) erf'(v) = :math:`(4/\pi) ((1 + 2 var_u)(1 + 2 var_v) - 4 cov^2)^{-1/2}`.

    Examples
    --------
    >>> round(float(derf_product(0.0, 0.0, 0.0)) * math.pi, 12)
    4.0
    """
    return 4.0 / math.pi / _erf_root(var_u, var_v, cov)


def _erf_root(var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike) -> FloatArray:
    u, v, _ = _arguments(var_u, var_v, cov)
    return np.sqrt(1.0 + 2.0 * u + 2.0 * v + 4.0 * determinant(var_u, var_v, cov))


def _arguments(
    var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike
) -> tuple[FloatArray, FloatArray, FloatArray]:
    arrays = []
    for name, value in (("var_u", var_u), ("var_v", var_v), ("cov", cov)):
        array = np.asarray(value)
        if array.dtype.kind not in "fiu":
            raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
        array = array.astype(np.float64)
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
        if name != "cov" and (array < 0).any():
            raise ValueError(f"{name} must not be negative, got {array.min()}")
        arrays.append(array)
    u, v, c = np.broadcast_arrays(*arrays)
    return u, v, c


def determinant(var_u: ArrayLike, var_v: ArrayLike, cov: ArrayLike) -> FloatArray:
    r""":math:`var_u\, var_v - cov^2`, correctly rounded but for one bit, and clipped at 0.

    The two products are formed exactly (Dekker), so nothing is lost when the correlation is near
    one. Relative values down to -1e-12 count as rounding of the input.

    Raises
    ------
    ValueError : a variance is negative, or :math:`|cov| > (var_u var_v)^{1/2}`.

    Examples
    --------
    >>> float(determinant(1.0, 1.0, 1.0 - 2.0**-40)) == 2.0**-39 - 2.0**-80
    True
    """
    u, v, c = _arguments(var_u, var_v, cov)
    # Powers of two are moved out of the way: no overflow, no rounding.
    ku, kv = np.frexp(u)[1] // 2, np.frexp(v)[1] // 2
    # A covariance far below the variances underflows rightly: its square is nothing beside them.
    with np.errstate(under="ignore"):
        cov_in, c = c, np.ldexp(c, -(ku + kv))
        high, low = _product(np.ldexp(u, -2 * ku), np.ldexp(v, -2 * kv))
        square, square_low = _product(c, c)
        det = (high - square) + (low - square_low)
    bad = det < -1e-12 * high
    if bad.any():
        where = tuple(np.argwhere(bad)[0])
        raise ValueError(
            f"cov must satisfy |cov| <= sqrt(var_u var_v), got var_u = {u[where]}, "
            f"var_v = {v[where]}, cov = {cov_in[where]}"
        )
    with np.errstate(under="ignore"):
        return np.asarray(np.ldexp(np.maximum(det, 0.0), 2 * (ku + kv)))


def _product(a: FloatArray, b: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return a b rounded, and the exact rounding error (Dekker 1971)."""
    a_high, a_low = _split(a)
    b_high, b_low = _split(b)
    product = a * b
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, error


def _split(a: FloatArray) -> tuple[FloatArray, FloatArray]:
    shifted = 134217729.0 * a
    high = shifted - (shifted - a)
    return high, a - high
