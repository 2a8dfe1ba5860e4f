"""Kinks of one activation under a Gaussian: jumps of the slope, densities, absolute moments."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

from implicitnn._kernels.layer import Layer

FloatArray = NDArray[np.float64]
SILENT = 1e-300


def jumps(layer: Layer) -> list[tuple[float, float]]:
    """Kinks, and the jumps of the slope there."""
    result = []
    for kink in layer.phi.kinks:
        step = 1e-9 * max(1.0, abs(kink))
        below, above = layer.phi.df(np.array([kink - step, kink + step]))
        result.append((kink, float(above - below)))
    return result


def density(t: float, variance: FloatArray) -> FloatArray:
    """Of N(0, variance) at t."""
    return np.asarray(np.exp(-0.5 * t * t / variance) / np.sqrt(2.0 * np.pi * variance))


def folded(mean: FloatArray, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E|z| and E|z|^3 for z ~ N(mean, spread^2)."""
    # beyond 40 standard deviations z has the sign of its mean
    ratio = np.clip(mean / np.maximum(spread, SILENT), -40.0, 40.0)
    peak = spread * math.sqrt(2.0 / math.pi) * np.exp(-0.5 * ratio**2)
    side = mean * erf(ratio / math.sqrt(2.0))
    square, even = spread**2, mean**2
    return peak + side, peak * (even + 2.0 * square) + side * (even + 3.0 * square)
