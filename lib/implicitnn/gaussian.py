r"""Expectations over Gaussian variables, exact at kinks.

Every integral is taken piece by piece: the line is cut at the kinks of the function, and each piece
is integrated by Gauss-Legendre rules that are refined until two orders agree. A single global
Gauss-Hermite rule would lose all but a few digits at a kink.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn._gaussian.closed_forms import (
    derf_product,
    determinant,
    erf_product,
    leaky_relu_product,
    leaky_step_product,
    relu_product,
    step_product,
)
from implicitnn._gaussian.quadrature import IntArray, Panels, integrate
from implicitnn.errors import AccuracyError

__all__ = [
    "SteinMoments",
    "bivariate",
    "derf_product",
    "determinant",
    "erf_product",
    "expectation",
    "expectations",
    "hermite_coefficients",
    "hermite_functions",
    "leaky_relu_product",
    "leaky_step_product",
    "relu_product",
    "stein_moments",
    "step_product",
    "variance_profile",
]

FloatArray = NDArray[np.float64]
Function = Callable[[FloatArray], FloatArray]

WINDOW = 14.0
_EDGES = np.array([-WINDOW, -9.0, -6.0, -3.0, 0.0, 3.0, 6.0, 9.0, WINDOW])
_FINE_EDGES = np.union1d(_EDGES, np.arange(-6.0, 6.5, 1.0))
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)
# far out the density, and a function that vanishes there, underflow to 0: that is their value
_vanishing = np.errstate(under="ignore")


@dataclass(frozen=True)
class SteinMoments:
    r"""Moments of :math:`f(\tau\xi)`: E f, E f^2, E f', E f'' and E (f^2)''."""

    mean: float
    square: float
    d1: float
    d2: float
    square_d2: float


def expectation(f: Function, tau: float = 1.0, kinks: Sequence[float] = ()) -> float:
    r""":math:`E\, f(\tau \xi)` for :math:`\xi \sim N(0, 1)`, near machine precision.

    The line is cut at the kinks (points where f or f' jumps, given in :math:`t = \tau\xi`). The
    window is 14 standard deviations, enough for any f of at most exponential growth. The error is
    about 1e-15 of :math:`E |f|`, or the rounding noise of f where that is larger. A peak narrower
    than 1/100 of ``tau`` must lie at 0 or at a declared kink to be seen; declare one there, a kink
    where nothing jumps does no harm. (`DEQ`, `ENN`, `equivalents` and `kernels` look for the narrow
    features of an activation themselves, down to 1/3000.)

    Parameters
    ----------
    f : vectorised, maps an array (m,) to an array (m,).
    tau : standard deviation, at least 0; ``tau = 0`` gives f(0).
    kinks : kinks of f.

    Raises
    ------
    ValueError : f is not vectorised, or not finite at some point.
    AccuracyError : f grows too fast, or is too rough to integrate.

    Examples
    --------
    >>> round(expectation(lambda t: np.maximum(t, 0.0), 2.0, kinks=(0.0,)), 12)
    0.797884560803
    """
    return float(expectations(lambda t: _call(f, t)[None], tau, kinks)[0])


def expectations(f: Function, tau: float = 1.0, kinks: Sequence[float] = ()) -> FloatArray:
    r""":math:`E\, f_k(\tau \xi)` for several functions at one time.

    Parameters
    ----------
    f : maps an array (m,) to an array (k, m), one row for each function.
    tau, kinks : as in :func:`expectation`; the kinks of all rows together.

    Returns
    -------
    Array (k,).

    Examples
    --------
    >>> expectations(lambda t: np.stack([t**2, t**4]), 2.0).round(12).tolist()
    [4.0, 48.0]
    """
    tau = _validate.nonnegative(tau, "tau")
    places = _kinks(kinks, "kinks")
    at_zero = _call_rows(f, np.zeros(1))
    if tau == 0.0:
        return at_zero[:, 0]
    return _weighted(lambda x: _call_rows(f, tau * x), _cut(places, tau), at_zero.shape[0])


def stein_moments(f: Function, tau: float, kinks: Sequence[float] = ()) -> SteinMoments:
    r"""Moments of f and of its derivatives, from values of f alone.

    Stein's identities, valid for continuous f with kinks:
    :math:`E f'(\tau\xi) = E[\xi f]/\tau`, :math:`E f'' = E[(\xi^2 - 1) f]/\tau^2` and
    :math:`E (f^2)'' = E[(\xi^2 - 1) f^2]/\tau^2`.

    Parameters
    ----------
    f, kinks : as in :func:`expectation`.
    tau : standard deviation, positive (the identities divide by it).

    Examples
    --------
    >>> m = stein_moments(lambda t: np.maximum(t, 0.0), 1.0, kinks=(0.0,))
    >>> round(m.d1, 12), round(m.d2 * math.sqrt(2 * math.pi), 12), round(m.square_d2, 12)
    (0.5, 1.0, 1.0)
    """
    tau = _validate.positive(tau, "tau")

    def rows(x: FloatArray) -> FloatArray:
        value = _call(f, tau * x)
        square = value * value
        bend = x * x - 1.0
        return np.stack([value, square, x * value, bend * value, bend * square])

    mean, square, d1, d2, square_d2 = _weighted(rows, _cut(_kinks(kinks, "kinks"), tau), 5)
    return SteinMoments(
        float(mean), float(square), float(d1 / tau), float(d2 / tau**2), float(square_d2 / tau**2)
    )


@_vanishing
def hermite_functions(x: FloatArray, degree: int) -> FloatArray:
    r""":math:`he_k(x) e^{-x^2/4}`, k = 0..degree, he_k orthonormal for N(0, 1); (degree+1, m).

    The three-term recursion :math:`\sqrt{k+1}\, he_{k+1} = x\, he_k - \sqrt{k}\, he_{k-1}` carries
    the factor :math:`e^{-x^2/4}` from the start, so nothing overflows at any degree.
    """
    degree = _validate.integer(degree, "degree")
    table = np.empty((degree + 1, x.size))
    table[0] = np.exp(-0.25 * x * x)
    if degree:
        table[1] = x * table[0]
    for k in range(1, degree):
        table[k + 1] = (x * table[k] - math.sqrt(k) * table[k - 1]) / math.sqrt(k + 1)
    return table


def hermite_coefficients(
    f: Function, variance: ArrayLike, degree: int, kinks: Sequence[float] = ()
) -> FloatArray:
    r"""Orthonormal Hermite coefficients as functions of the variance.

    :math:`c_k(v) = E[f(\sqrt v\, \xi)\, he_k(\xi)]`, so that for correlated Gaussians
    :math:`E f(u) g(w) = \sum_k c_k^f(v_u)\, c_k^g(v_w)\, \rho^k`. Absolute error about 1e-15 of
    :math:`(E f^2)^{1/2}`, at any degree.

    Parameters
    ----------
    f, kinks : as in :func:`expectation`.
    variance : number or array (m,), at least 0.
    degree : highest k.

    Returns
    -------
    Array (degree+1,), or (m, degree+1) for an array of variances.

    Examples
    --------
    >>> hermite_coefficients(lambda t: t**2 + t, 4.0, 2).round(12).tolist()
    [4.0, 2.0, 5.656854249492]
    """
    degree = _validate.integer(degree, "degree")
    scalar = np.ndim(variance) == 0
    variances = _validate.real_array(np.atleast_1d(np.asarray(variance)), "variance", 1)
    places = _kinks(kinks, "kinks")
    rows = [
        _coefficients(f, math.sqrt(_validate.nonnegative(float(v), "variance")), degree, places)
        for v in variances
    ]
    return rows[0] if scalar else np.stack(rows)


def _coefficients(f: Function, tau: float, degree: int, kinks: FloatArray) -> FloatArray:
    if tau == 0.0:
        result = np.zeros(degree + 1)
        result[0] = _call(f, np.zeros(1))[0]
        return result

    def integrand(x: FloatArray, owner: IntArray) -> FloatArray:
        flat = x.ravel()
        weighted = _call(f, tau * flat) * np.exp(-0.25 * flat * flat) * _INV_SQRT_2PI
        return (hermite_functions(flat, degree) * weighted).reshape(degree + 1, *x.shape)

    panels = Panels.between(_cut(kinks, tau))
    return integrate(integrand, panels, 1, components=degree + 1)[0][:, 0]


@_vanishing
def bivariate(
    f: Function,
    g: Function,
    var_u: float,
    var_v: float,
    cov: float,
    kinks_f: Sequence[float] = (),
    kinks_g: Sequence[float] = (),
) -> float:
    r""":math:`E[f(u) g(v)]` for centred jointly Gaussian (u, v), exact at kinks.

    The outer integral runs over u. The inner one runs over v given u, with the kinks of g moved to
    where that conditional variable meets them. Perfectly correlated variables give one integral
    with the kinks of both. Jumps at declared kinks are allowed. Error about 1e-14 of
    :math:`(E f^2\, E g^2)^{1/2}` for any correlation. A peak narrower than 1/20 of the standard
    deviation must lie at 0 or at a declared kink to be seen; declaring one there does no harm. For
    a peak narrower than 1e-4 of it, declare both of its sides too.

    Parameters
    ----------
    f, g : vectorised functions.
    var_u, var_v : variances, at least 0.
    cov : covariance, :math:`|cov| \le (var_u var_v)^{1/2}` up to rounding.
    kinks_f, kinks_g : kinks of f and of g.

    Raises
    ------
    ValueError : the covariance is impossible, or a function is not vectorised or not finite.
    AccuracyError : a function grows too fast, or is too rough to integrate.

    Examples
    --------
    >>> relu = lambda t: np.maximum(t, 0.0)
    >>> round(bivariate(relu, relu, 1.0, 1.0, 1.0, (0.0,), (0.0,)), 12)
    0.5
    """
    var_u = _validate.nonnegative(var_u, "var_u")
    var_v = _validate.nonnegative(var_v, "var_v")
    cov = _validate.real(cov, "cov")
    det = float(determinant(var_u, var_v, cov))
    su, sv = math.sqrt(var_u), math.sqrt(var_v)
    if su == 0.0 or sv == 0.0:
        return expectation(f, su, kinks_f) * expectation(g, sv, kinks_g)
    at_f, at_g = _kinks(kinks_f, "kinks_f") / su, _kinks(kinks_g, "kinks_g") / sv
    rho = max(-1.0, min(1.0, cov / (su * sv)))
    rest = math.sqrt(det) / (su * sv)
    if rest == 0.0:
        sign = math.copysign(1.0, cov)
        edges = _cut(np.concatenate([at_f, sign * at_g]), 1.0)
        product = _weighted(lambda x: (_call(f, su * x) * _call(g, sign * sv * x))[None], edges, 1)
        return float(product[0])
    scale_f = float(_weighted(lambda x: np.abs(_call(f, su * x))[None], _cut(at_f, 1.0), 1)[0])
    scale_g = float(_weighted(lambda x: np.abs(_call(g, sv * x))[None], _cut(at_g, 1.0), 1)[0])

    def outer(x: FloatArray, owner: IntArray) -> FloatArray:
        flat = x.ravel()
        inner = _conditional(g, sv * rho * flat, sv * rest, sv * at_g, scale_g)
        return (_call(f, su * flat) * inner * _density(flat)).reshape(1, *x.shape)

    panels = Panels.between(_cut(np.concatenate([at_f, _layers(at_g, rho, rest)]), 1.0))
    return float(integrate(outer, panels, 1, scale=scale_f * scale_g)[0][0, 0])


def variance_profile(
    f: Function, taus: FloatArray, kinks: Sequence[float] = (), *, rtol: float = 1e-7
) -> tuple[FloatArray, FloatArray]:
    r"""E f and E f^2 at many standard deviations at one time, to a coarse relative accuracy.

    Examples
    --------
    >>> mean, square = variance_profile(np.abs, np.array([1.0, 2.0]), (0.0,))
    >>> square.round(6).tolist()
    [1.0, 4.0]
    """
    panels = _cut_rows(_kinks(kinks, "kinks"), np.zeros_like(taus), taus)

    def integrand(x: FloatArray, owner: IntArray) -> FloatArray:
        values = _call(f, (taus[owner, None] * x).ravel()).reshape(x.shape)
        return np.stack([values, values * values]) * _density(x)

    mean, square = integrate(integrand, panels, taus.size, components=2, rtol=rtol)[0]
    return mean, square


def _cut_rows(kinks: FloatArray, mean: FloatArray, sd: FloatArray) -> Panels:
    """Panels in x for the variables mean_i + sd_i x, each cut where it meets the kinks."""
    with np.errstate(over="ignore"):
        moved = np.clip((kinks - mean[:, None]) / sd[:, None], -WINDOW, WINDOW)
    fixed = np.broadcast_to(_EDGES, (mean.size, _EDGES.size))
    return Panels.between(np.sort(np.concatenate([fixed, moved], axis=1), axis=1))


def _conditional(
    g: Function, mean: FloatArray, sd: float, kinks: FloatArray, scale: float
) -> FloatArray:
    """E g(mean_i + sd y) for each mean; kinks of g cut each integral at its own places."""
    panels = _cut_rows(kinks, mean, np.full_like(mean, sd))

    def integrand(y: FloatArray, owner: IntArray) -> FloatArray:
        values = _call(g, (mean[owner, None] + sd * y).ravel()).reshape(y.shape)
        return (values * _density(y))[None]

    totals, _ = integrate(integrand, panels, mean.size, scale=scale)
    return np.asarray(totals[0])


def _layers(kinks: FloatArray, rho: float, rest: float) -> FloatArray:
    """Where E[g(v) | u] is steep: each kink of g makes a layer of width rest / rho about it."""
    if rest > 0.25 * abs(rho):
        return np.empty(0)
    width = rest / abs(rho)
    places = kinks / rho
    return (places[:, None] + width * np.array([-9.0, -3.0, 0.0, 3.0, 9.0])).ravel()


@_vanishing
def _weighted(rows: Function, edges: FloatArray, count: int) -> FloatArray:
    """Integrals of ``rows(x)`` (count, m) times the normal density."""

    def integrand(x: FloatArray, owner: IntArray) -> FloatArray:
        flat = x.ravel()
        return (rows(flat) * _density(flat)).reshape(count, *x.shape)

    ends = np.abs(rows(np.array([-WINDOW, WINDOW])) * _density(np.array(WINDOW))).max(axis=1)
    totals, masses = integrate(integrand, Panels.between(edges), 1, components=count)
    grows = (ends > 1e-14 * masses[:, 0]) & (ends > 1e-20)
    if grows.any():
        raise AccuracyError("the function grows too fast for its Gaussian expectation to be taken")
    return totals[:, 0]


def _density(x: FloatArray) -> FloatArray:
    return np.exp(-0.5 * x * x) * _INV_SQRT_2PI


def _cut(kinks: FloatArray, tau: float) -> FloatArray:
    """Edges of the panels in units of the standard deviation."""
    with np.errstate(over="ignore"):
        places = kinks / tau
    return np.union1d(_FINE_EDGES, places[np.abs(places) < WINDOW])


def _kinks(kinks: Sequence[float], name: str) -> FloatArray:
    return np.array(_validate.reals(kinks, name), dtype=np.float64)


@_vanishing
def _call(f: Function, t: FloatArray) -> FloatArray:
    return _checked(f(t), t, t.shape)


@_vanishing
def _call_rows(f: Function, t: FloatArray) -> FloatArray:
    values = np.asarray(f(t))
    return _checked(values, t, (values.shape[0] if values.ndim else 0, t.size))


def _checked(values: ArrayLike, t: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    array = np.asarray(values)
    if array.shape != shape:
        raise ValueError(
            f"the function must be vectorised: for an argument of shape {t.shape} it returned "
            f"shape {array.shape}, expected {shape}"
        )
    if array.dtype.kind not in "fiub":
        raise TypeError(f"the function must return real numbers, got dtype {array.dtype}")
    result = array.astype(np.float64, copy=False)
    if not np.isfinite(result).all():
        column = np.argwhere(~np.isfinite(result))[0][-1]
        bad = result[..., column]
        raise ValueError(f"the function is not finite at t = {t[column]:.6g} (value {bad})")
    return result
