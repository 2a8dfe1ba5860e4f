r"""Scalar reference for both kernels: one pair of samples, generic quadrature, plain Newton.

Shares no code with the fast routes but the quadrature of :mod:`implicitnn.gaussian`; slow, used by
the tests and the benchmarks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from implicitnn import gaussian
from implicitnn.errors import NotWellPosedError
from implicitnn.specs import DEQ, ENN, Centred

STEPS = 100


class Entry(NamedTuple):
    """CK, E phi' phi' of the last layer, and both NTKs of one pair."""

    ck: float
    dot: float
    ntk_published: float
    ntk_all: float


def entry(spec: DEQ | ENN, q1: float, q2: float, s: float) -> Entry:
    r"""Both kernels for :math:`|x|^2 = q_1, |y|^2 = q_2, x^T y = s`.

    Raises
    ------
    NotWellPosedError : the fixed point is not reached.

    Examples
    --------
    >>> from implicitnn.activations import linear
    >>> [round(v, 12) for v in entry(DEQ(linear, 0.5), 1.0, 1.0, 0.25)]
    [0.25, 1.0, 0.5, 0.75]
    """
    return _implicit(spec, q1, q2, s) if isinstance(spec, DEQ) else _explicit(spec, q1, q2, s)


def _product(phi: Centred, v1: float, v2: float, cov: float) -> float:
    limit = math.sqrt(v1 * v2)
    cov, places = max(-limit, min(limit, cov)), _landmarks(phi)
    return gaussian.bivariate(phi, phi, v1, v2, cov, places, places)


def _slope(phi: Centred, v1: float, v2: float, cov: float) -> float:
    limit = math.sqrt(v1 * v2)
    cov, places = max(-limit, min(limit, cov)), _landmarks(phi)
    return gaussian.bivariate(phi.df, phi.df, v1, v2, cov, places, places)


def _landmarks(phi: Centred) -> tuple[float, ...]:
    """The kinks, and both sides of 0: the shipped activations bend there, sharply when far."""
    return (-1.0, 0.0, 1.0, *phi.kinks)


def _variance(spec: DEQ, q: float) -> float:
    """Picard iteration from the drive, with Aitken's acceleration."""
    phi, drive = spec.phi, spec.sigma_b2 * q + spec.sigma_c2

    def step(v: float) -> float:
        mean_square = gaussian.expectation(lambda t: phi(t) ** 2, math.sqrt(v), phi.kinks)
        return spec.sigma_a2 * mean_square + drive

    v = drive
    for _ in range(STEPS):
        one = step(v)
        two = step(one)
        bend = two - 2.0 * one + v
        new = two if bend == 0.0 else v - (one - v) ** 2 / bend
        if not math.isfinite(new):
            break
        if abs(new - v) <= 2e-15 * abs(new) or two == one:
            return two
        v = new if new > 0.0 else two
    raise NotWellPosedError(f"{spec!r} has no fixed point at |x|^2 = {q}")


def _implicit(spec: DEQ, q1: float, q2: float, s: float) -> Entry:
    phi = spec.phi
    v1 = _variance(spec, q1)
    v2 = v1 if q2 == q1 else _variance(spec, q2)
    drive = spec.sigma_b2 * s + spec.sigma_c2
    limit = math.sqrt(v1 * v2)
    cov = v1 if q1 == q2 == s else max(-limit, min(limit, drive))
    for step in range(STEPS):
        value, dot = _product(phi, v1, v2, cov), _slope(phi, v1, v2, cov)
        change = (spec.sigma_a2 * value + drive - cov) / (1.0 - spec.sigma_a2 * dot)
        if q1 == q2 == s or abs(change) <= (1e-15 if step < 6 else 1e-13) * limit:
            rest = 1.0 - spec.sigma_a2 * dot
            return Entry(value, dot, value / rest, (value + drive * dot) / rest)
        cov = max(-limit, min(limit, cov + change))
    raise NotWellPosedError(f"{spec!r}: Newton did not converge at q = {q1}, {q2}, s = {s}")


def _explicit(spec: ENN, q1: float, q2: float, s: float) -> Entry:
    v1, v2, cov, kernel, dot = q1, q2, s, s, 1.0
    for phi in spec.phis:
        dot = _slope(phi, v1, v2, cov)
        new = _product(phi, v1, v2, cov)
        v1, v2 = _product(phi, v1, v1, v1), _product(phi, v2, v2, v2)
        cov, kernel = new, new + kernel * dot
    return Entry(cov, dot, kernel, kernel)
