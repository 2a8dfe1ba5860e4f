r"""Layers of a design: activations with prescribed shares of energy, as picklable objects.

A centred layer fed with standard deviation tau has Hermite coefficients c_1, c_2, ... of
:math:`\sigma(\tau\xi)`, energy :math:`E = \sum c_k^2` and shares :math:`u = c_1^2/E`,
:math:`w = c_2^2/E`. The equivalents see a layer through E, u, w and two more numbers,
:math:`k = \tau^2 E(\sigma^2)''/(2E)` and :math:`e = \tau^2 E\sigma'^2/E`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicitnn import _validate
from implicitnn.activations import Activation, _shipped, linear, quadratic

FloatArray = NDArray[np.float64]

PI_LESS_2 = math.pi - 2.0
_SQRT2, _SQRT6 = math.sqrt(2.0), math.sqrt(6.0)


@dataclass(frozen=True)
class _Rays:
    a: float
    b: float

    def __call__(self, t: FloatArray) -> FloatArray:
        return np.where(np.asarray(t) > 0, self.a * np.asarray(t), self.b * np.asarray(t))


@dataclass(frozen=True)
class _RaysDerivative:
    a: float
    b: float

    def __call__(self, t: FloatArray) -> FloatArray:
        return np.where(np.asarray(t) > 0, self.a, self.b)


@dataclass(frozen=True)
class _Hermite:
    c1: float
    c2: float
    c3: float
    tau: float

    def __call__(self, t: FloatArray) -> FloatArray:
        x = np.asarray(t) / self.tau
        with np.errstate(over="ignore"):
            cubic = x * (self.c1 + self.c3 * (x * x - 3.0) / _SQRT6)
            return np.asarray(cubic + self.c2 * (x * x - 1.0) / _SQRT2)


@dataclass(frozen=True)
class _HermiteDerivative:
    c1: float
    c2: float
    c3: float
    tau: float

    def __call__(self, t: FloatArray) -> FloatArray:
        x = np.asarray(t) / self.tau
        with np.errstate(over="ignore"):
            slope = self.c1 + _SQRT2 * self.c2 * x + 0.5 * _SQRT6 * self.c3 * (x * x - 1.0)
            return np.asarray(slope / self.tau)


def l_relu(a: float, b: float) -> Activation:
    """Two rays: a t for t > 0, b t for t < 0; the maximum of the two when a >= b.

    Examples
    --------
    >>> l_relu(2.0, 0.5)(np.array([-2.0, 3.0])).tolist()
    [-1.0, 6.0]
    """
    a, b = _validate.real(a, "a"), _validate.real(b, "b")
    kinks = () if a == b else (0.0,)
    name = f"l_relu({a!r}, {b!r})"
    return _shipped(name, _Rays(a, b), _RaysDerivative(a, b), kinks, homogeneous=True)


def hermite(c1: float, c2: float = 0.0, c3: float = 0.0, tau: float = 1.0) -> Activation:
    r"""Cubic with given Hermite coefficients at scale tau.

    :math:`c_1 x + c_2 (x^2-1)/\sqrt2 + c_3 (x^3-3x)/\sqrt6` with x = t/tau, so that
    :math:`E f(\tau\xi) = 0` and :math:`E f(\tau\xi)^2 = c_1^2 + c_2^2 + c_3^2`.

    Examples
    --------
    >>> from implicitnn import gaussian
    >>> f = hermite(1.0, 0.5, -0.25, tau=2.0)
    >>> gaussian.hermite_coefficients(f, 4.0, 3)[1:].round(12).tolist()
    [1.0, 0.5, -0.25]
    """
    values = [_validate.real(c, name) for c, name in ((c1, "c1"), (c2, "c2"), (c3, "c3"))]
    values.append(_validate.positive(tau, "tau"))
    name = "hermite({!r}, {!r}, {!r}, tau={!r})".format(*values)
    return _shipped(name, _Hermite(*values), _HermiteDerivative(*values))


def l_relu_of_share(u: float, energy: float, tau: float) -> Activation:
    """L-ReLU layer with linear share u and output energy E; a >= |b|."""
    mean = math.sqrt(u * energy) / tau
    half = math.sqrt(max(1.0 - u, 0.0) * energy * math.pi / PI_LESS_2) / tau
    return l_relu(mean + half, mean - half)


def hermite_of_shares(u: float, w: float, v: float, energy: float, tau: float) -> Activation:
    """Cubic layer with shares u, w, |v| of the energy; the sign of v is the sign of c3."""
    c1, c2, c3 = (math.sqrt(abs(share) * energy) for share in (u, w, v))
    return hermite(c1, c2, math.copysign(c3, v) if c3 else 0.0, tau)


def quadratic_of_shares(u: float, w: float, energy: float, tau: float) -> Activation:
    """Quadratic layer q t^2 + r t with shares u, w of the energy."""
    return quadratic(math.sqrt(w * energy / 2.0) / tau**2, math.sqrt(u * energy) / tau)


def formula(layer: Activation, offset: float) -> str:
    """Write a layer of this module, or a clip or quadratic, as a centred formula in t."""
    f = layer.f
    if layer == linear:
        return "t"
    if isinstance(f, _Rays):
        body = (
            f"max({f.a:.12g} t, {f.b:.12g} t)"
            if f.a >= f.b
            else f"{f.a:.12g} t for t > 0, {f.b:.12g} t for t < 0"
        )
    elif isinstance(f, _Hermite):
        body = (
            f"{f.c1:.12g} x {f.c2:+.12g} (x^2 - 1)/sqrt(2) {f.c3:+.12g} (x^3 - 3 x)/sqrt(6), "
            f"x = t/{f.tau:.12g}"
        )
        return body
    elif layer.name.startswith("hard_tanh"):
        a, c = parameters(layer)
        return f"{a:.12g} clip(t, -{c:.12g}, {c:.12g})"
    else:
        q, r = parameters(layer)
        body = f"{q:.12g} t^2 {r:+.12g} t"
    return f"{body} {-offset:+.12g}"


def parameters(layer: Activation) -> tuple[float, ...]:
    """Return the numbers that define a designed layer, in the order of its factory."""
    return tuple(float(value) for value in vars(layer.f).values())
