r"""Random activations in four families, and the cubic whose DEQ one layer can follow.

smooth : :math:`d t + \sum_k a_k \tanh(b_k t + c_k)`; kinked : :math:`d t + \sum_k a_k |t - c_k|`;
odd : odd parts of the first or the second kind; balanced : a cubic, neither odd nor even, with
Hermite coefficients at scale one such that :math:`2c_2^2 + 3c_3^2 + \sqrt6 c_1c_3 = 0`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from implicitnn import design
from implicitnn._validate import FloatArray, generator, one_of
from implicitnn.activations import Activation
from implicitnn.gaussian import expectation

FAMILIES = ("smooth", "kinked", "odd", "balanced")
TERMS = 3


@dataclass(frozen=True)
class _Terms:
    """Weights a, slopes b and places c of the terms, and the slope d of the linear part."""

    a: tuple[float, ...]
    b: tuple[float, ...]
    c: tuple[float, ...]
    d: float


@dataclass(frozen=True)
class _Smooth:
    terms: _Terms

    def __call__(self, t: FloatArray) -> FloatArray:
        t, s = np.asarray(t, dtype=float), self.terms
        parts = [a * np.tanh(b * t + c) for a, b, c in zip(s.a, s.b, s.c, strict=True)]
        return np.asarray(s.d * t + np.sum(parts, axis=0))


@dataclass(frozen=True)
class _SmoothSlope:
    terms: _Terms

    def __call__(self, t: FloatArray) -> FloatArray:
        t, s = np.asarray(t, dtype=float), self.terms
        parts = [
            a * b * (1 - np.tanh(b * t + c) ** 2) for a, b, c in zip(s.a, s.b, s.c, strict=True)
        ]
        return np.asarray(s.d + np.sum(parts, axis=0))


@dataclass(frozen=True)
class _Kinked:
    terms: _Terms

    def __call__(self, t: FloatArray) -> FloatArray:
        t, s = np.asarray(t, dtype=float), self.terms
        parts = [a * np.abs(t - c) for a, c in zip(s.a, s.c, strict=True)]
        return np.asarray(s.d * t + np.sum(parts, axis=0))


@dataclass(frozen=True)
class _KinkedSlope:
    terms: _Terms

    def __call__(self, t: FloatArray) -> FloatArray:
        t, s = np.asarray(t, dtype=float), self.terms
        parts = [a * np.sign(t - c) for a, c in zip(s.a, s.c, strict=True)]
        return np.asarray(s.d + np.sum(parts, axis=0))


def draw(family: str, rng: np.random.Generator | int) -> Activation:
    r"""Return a random activation with :math:`E f'(\xi)^2 = 1` (balanced: :math:`E f(\xi)^2 = 1`).

    Examples
    --------
    >>> draw("odd", 0)(np.array([-1.0, 1.0])).sum().item()
    0.0
    """
    one_of(family, "family", FAMILIES)
    source = generator(rng)
    if family == "balanced":
        return _balanced(source)
    kinked = family == "kinked" or (family == "odd" and source.random() < 0.5)
    a, c = source.normal(size=TERMS), source.uniform(-1.5, 1.5, TERMS)
    b, d = source.uniform(0.5, 2.0, TERMS), float(source.normal())
    if family == "odd":
        a, b, c = _mirrored(a, b, c, kinked)
    raw = _build(family, _terms(a, b, c, d), kinked)
    slope = math.sqrt(expectation(lambda t: raw.df(t) ** 2, 1.0, raw.kinks))
    return _build(family, _terms(a / slope, b, c, d / slope), kinked)


def _mirrored(
    a: FloatArray, b: FloatArray, c: FloatArray, kinked: bool
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Add each term at the mirrored place, so that the sum is odd."""
    return np.r_[a, -a if kinked else a], np.r_[b, b], np.r_[c, -c]


def _terms(a: FloatArray, b: FloatArray, c: FloatArray, d: float) -> _Terms:
    return _Terms(tuple(a.tolist()), tuple(b.tolist()), tuple(c.tolist()), float(d))


def _build(family: str, terms: _Terms, kinked: bool) -> Activation:
    if kinked:
        return Activation(f"random {family}", _Kinked(terms), _KinkedSlope(terms), terms.c)
    return Activation(f"random {family}", _Smooth(terms), _SmoothSlope(terms))


def _balanced(source: np.random.Generator) -> Activation:
    ratio = float(source.uniform(0.05, 0.95)) * math.sqrt(6.0) / 3.0
    shares = np.array([1.0, math.sqrt((math.sqrt(6.0) * ratio - 3.0 * ratio**2) / 2.0), -ratio])
    c1, c2, c3 = (shares / np.linalg.norm(shares)).tolist()
    return design.hermite(c1, c2, c3)
