r"""Coefficients of many DEQs that share an activation, by one vectorised quadrature.

Moments at m standard deviations at one time: Gauss-Legendre panels cut at the kinks. The fixed
points are bracketed on one profile of the variance map and refined by a safeguarded Newton method,
for all :math:`\sigma_a^2` together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from implicitnn._rmt.coefficients import Coefficients
from implicitnn._validate import FloatArray
from implicitnn.activations import Activation

_EDGES = np.concatenate([[-14.0, -9.0], np.arange(-6.0, 6.5, 1.0), [9.0, 14.0]])
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_PROFILE = 300
_STEPS = 60


@dataclass(frozen=True)
class Moments:
    """E phi^2, (E phi')^2, (E phi'')^2, E (phi^2)'' and E phi'^2 of the centred phi; (m,)."""

    square: FloatArray
    g1: FloatArray
    g2: FloatArray
    g4: FloatArray
    slope: FloatArray


def moments(activation: Activation, taus: FloatArray) -> Moments:
    """Moments at every standard deviation in taus (m,)."""
    kinks = np.array(activation.kinks)[None, :] / taus[:, None]
    fixed = np.broadcast_to(_EDGES, (taus.size, _EDGES.size))
    edges = np.sort(np.concatenate([fixed, np.clip(kinks, -14.0, 14.0)], axis=1), axis=1)
    half = 0.5 * np.diff(edges, axis=1)[:, :, None]
    x = (edges[:, :-1, None] + half * (1.0 + _NODES)).reshape(taus.size, -1)
    weight = (half * _WEIGHTS).reshape(taus.size, -1)
    weight = weight * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    t = taus[:, None] * x
    f = activation.f(t)
    f = f - (weight * f).sum(axis=1)[:, None]
    bend, square = x * x - 1.0, f * f
    return Moments(
        (weight * square).sum(axis=1),
        ((weight * x * f).sum(axis=1) / taus) ** 2,
        ((weight * bend * f).sum(axis=1) / taus**2) ** 2,
        (weight * bend * square).sum(axis=1) / taus**2,
        (weight * activation.df(t) ** 2).sum(axis=1),
    )


def fixed_points(activation: Activation, sigma_a2: FloatArray, tau0: float) -> FloatArray:
    """Return the smallest tau* for each sigma_a2 (sigma_b2 = 1 - sigma_a2), NaN where none is."""
    drive = (1.0 - sigma_a2) * tau0**2
    grid = np.geomspace(float(drive.min()) * 0.999, 1e4 * tau0**2, _PROFILE)
    square = moments(activation, np.sqrt(grid)).square
    excess = sigma_a2[:, None] * square + drive[:, None] - grid
    below = (excess <= 0.0) & (grid >= drive[:, None])
    first = np.argmax(below, axis=1)
    high = np.where(below.any(axis=1), grid[first], np.nan)
    low = np.maximum(drive, grid[np.maximum(first - 1, 0)])
    v = 0.5 * (low + high)
    for _ in range(_STEPS):
        m = moments(activation, np.sqrt(np.where(np.isnan(v), 1.0, v)))
        gap = sigma_a2 * m.square + drive - v
        low, high = np.where(gap > 0.0, v, low), np.where(gap > 0.0, high, v)
        step = gap / (1.0 - 0.5 * sigma_a2 * m.g4)
        new = v + step
        v = np.where((new >= low) & (new <= high), new, 0.5 * (low + high))
        if not (np.abs(step) > 1e-14 * v).any():
            break
    root: FloatArray = np.sqrt(v)
    return root


def coefficients(
    activation: Activation, sigma_a2: FloatArray, tau0: float, params: str
) -> list[Coefficients | None]:
    """Coefficients for each sigma_a2; None where the network is not well posed."""
    taus = fixed_points(activation, sigma_a2, tau0)
    m = moments(activation, np.where(np.isnan(taus), 1.0, taus))
    with np.errstate(divide="ignore", invalid="ignore"):
        table = _table(m, sigma_a2, taus, tau0, params)
    fine = (sigma_a2 * m.slope < 1.0) & (np.abs(0.5 * sigma_a2 * m.g4) < 1.0) & ~np.isnan(taus)
    return [
        Coefficients(**{name: float(row[i]) for name, row in table.items()}) if fine[i] else None
        for i in range(taus.size)
    ]


def _table(
    m: Moments, sigma_a2: FloatArray, taus: FloatArray, tau0: float, params: str
) -> dict[str, FloatArray]:
    """Return the formulas of Theorems 1 and 2 on arrays."""
    sigma_b2 = 1.0 - sigma_a2
    d0 = sigma_a2 * m.g1
    s1 = sigma_b2 / (1.0 - d0)
    alpha4 = sigma_b2 / (1.0 - 0.5 * sigma_a2 * m.g4)
    alpha1 = m.g1 * s1
    alpha2 = 0.25 * m.g2 * alpha4**2 / (1.0 - d0)
    alpha3 = 0.5 * m.g2 * s1**2 / (1.0 - d0)
    extra = sigma_b2 if params == "all" else np.zeros_like(sigma_b2)
    beta1 = (alpha1 + extra * m.g1) / (1.0 - d0)
    return {
        "tau": taus,
        "gamma2": m.square,
        "alpha1": alpha1,
        "alpha2": alpha2,
        "alpha3": alpha3,
        "alpha4": alpha4,
        "kappa2": (m.square + extra * tau0**2 * m.slope) / (1.0 - sigma_a2 * m.slope),
        "beta1": beta1,
        "beta2": alpha2 / (1.0 - d0),
        "beta3": (alpha3 + extra * m.g2 * s1 + beta1 * sigma_a2 * m.g2 * s1) / (1.0 - d0),
    }
