r"""Positively homogeneous activations: one equation in one unknown, with a right side per entry.

For f(t) = a t (t > 0), b t (t < 0) and phi = f - c, with :math:`\alpha = (a+b)/2`,
:math:`\beta = (a-b)/2`, :math:`\rho = \cos\theta`:

.. math:: k(\rho) = \alpha^2 \rho
   + \tfrac{2}{\pi} \beta^2 (\sin\theta + (\pi/2 - \theta) \rho), \quad
   \rho - \sigma_a^2 k(\rho) = r_{ij}, \quad r_{ij} = (v_i v_j)^{-1/2}
   (\sigma_b^2 x_i^T x_j + \sigma_c^2 + \sigma_a^2 (c^2 - c m_i - c m_j)) .

Solutions are tabulated in :math:`t = (r_{max} - r)^{1/2}`, in which they are analytic at rho = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn._kernels.diagonal import transform
from implicitnn.specs import DEQ, Centred

FloatArray = NDArray[np.float64]
LATTICE = 32
LAST = 27 / 32
FEW = 1e-3


@dataclass(frozen=True)
class Shape:
    """alpha^2 and beta^2 of f, E f(xi), and the constant c."""

    linear: float
    bent: float
    mean: float
    offset: float

    @classmethod
    def of(cls, phi: Centred) -> Shape:
        """Read the two slopes off f(1) and f(-1)."""
        a, minus_b = phi.activation.f(np.array([1.0, -1.0]))
        alpha, beta = 0.5 * (a - minus_b), 0.5 * (a + minus_b)
        mean = float(beta * math.sqrt(2.0 / math.pi))
        return cls(float(alpha**2), float(beta**2), mean, phi.offset)

    @property
    def top(self) -> float:
        """k(1)."""
        return self.linear + self.bent

    @property
    def rest(self) -> float:
        r"""The least standard deviation of phi: :math:`c (1 - m^2/k(1))^{1/2}`."""
        if self.top == 0.0:
            return abs(self.offset)
        return abs(self.offset) * math.sqrt(1.0 - self.bent * (2.0 / math.pi) / self.top)

    def product(self, theta: FloatArray) -> FloatArray:
        """k(cos theta)."""
        bend = np.sin(theta) + (0.5 * np.pi - theta) * np.cos(theta)
        return self.linear * np.cos(theta) + self.bent * (2.0 / np.pi) * bend

    def slope(self, theta: FloatArray) -> FloatArray:
        """k'(cos theta)."""
        return self.linear + self.bent * (1.0 - 2.0 * theta / np.pi)

    def drop(self, theta: FloatArray) -> FloatArray:
        """k(1) - k(cos theta), without cancellation near theta = 0."""
        gap = 2.0 * np.sin(0.5 * theta) ** 2
        small = theta**3 / 3.0 * (1.0 - theta**2 / 10.0 + theta**4 / 280.0)
        curl = np.where(theta < 1e-2, small, np.sin(theta) - theta * np.cos(theta))
        return self.top * gap - self.bent * (2.0 / np.pi) * curl

    def square(self, theta: FloatArray, sigma_a2: float) -> FloatArray:
        """r_max - r at rho = cos theta."""
        return 2.0 * np.sin(0.5 * theta) ** 2 - sigma_a2 * self.drop(theta)


def solve_angle(shape: Shape, sigma_a2: float, square: FloatArray) -> FloatArray:
    """Theta with r_max - r(theta) = square: bisection, then Newton in theta."""
    low, high = np.zeros_like(square), np.full_like(square, np.pi)
    theta = np.full_like(square, 0.5 * np.pi)
    for _ in range(90):
        value = shape.square(theta, sigma_a2) - square
        low, high = np.where(value <= 0, theta, low), np.where(value > 0, theta, high)
        rate = np.sin(theta) * (1.0 - sigma_a2 * shape.slope(theta))
        with np.errstate(divide="ignore", invalid="ignore"):
            guess = theta - value / rate
        inside = (guess > low) & (guess < high)
        new = np.where(inside, guess, 0.5 * (low + high))
        done = np.abs(new - theta) <= 2e-16 * theta
        theta = new
        if done.all():
            break
    return np.where(square <= 0.0, 0.0, theta)


def variances(spec: DEQ, q: FloatArray) -> FloatArray:
    """sqrt(v) on the diagonal: the positive root of a quadratic."""
    shape = Shape.of(spec.phi)
    c, a2 = shape.offset, spec.sigma_a2
    square = 1.0 - a2 * shape.top
    half = a2 * c * shape.mean
    constant = spec.sigma_b2 * q + spec.sigma_c2 + a2 * c * c
    root = np.sqrt(half * half + square * constant)
    if half < 0.0:
        return np.asarray((root - half) / square)
    return np.divide(constant, half + root, out=np.zeros_like(root), where=root > 0)


@lru_cache(maxsize=256)
def series(spec: DEQ, low: float, high: float, far: bool, tol: float) -> FloatArray:
    r"""Coefficients (degree, 2) of k and D/(1 - sa2 D) by powers of y in [-1, 1].

    y is affine in t, :math:`low \le t \le high`, or (far) in the root of what is left of t^2: near
    either end of rho the kernels are analytic in its own variable.
    """
    shape = Shape.of(spec.phi)
    total = largest(spec)
    count = 16
    while True:
        y = np.cos(np.pi * (np.arange(count) + 0.5) / count)
        square = (low + 0.5 * (high - low) * (y + 1.0)) ** 2
        theta = solve_angle(shape, spec.sigma_a2, total - square if far else square)
        slope = shape.slope(theta)
        values = np.stack([shape.product(theta), slope / (1.0 - spec.sigma_a2 * slope)], axis=1)
        table = transform(values, 0)
        if np.abs(table[-2:]).max() < tol or count >= 128:
            used = np.nonzero(np.abs(table).max(axis=1) > 0.1 * tol)[0].max(initial=0)
            # the Chebyshev coefficients fall faster than the powers grow: nothing is lost
            powers = [np.polynomial.chebyshev.cheb2poly(column) for column in table[: used + 1].T]
            return np.ascontiguousarray(np.column_stack([_padded(p, used + 1) for p in powers]))
        count *= 2


def usual(gap: FloatArray, total: float) -> tuple[float, float]:
    r"""A range of t, on a lattice, that holds all but a few of the given t^2 in [0, total].

    Away from its ends a single short polynomial does; the largest t, beyond :data:`LAST` of the
    whole range, stay out of it.
    """
    end = math.sqrt(total)
    low, high = (0.0, math.sqrt(0.5))
    if gap.size:
        low, high = np.quantile(np.sqrt(np.maximum(gap, 0.0) / total), [FEW, 1.0 - FEW])
    low = min(math.floor(low * LATTICE) / LATTICE, LAST - 2.0 / LATTICE)
    high = min(max(math.ceil(high * LATTICE) / LATTICE, low + 2.0 / LATTICE), LAST)
    return low * end, high * end


def _padded(values: FloatArray, size: int) -> FloatArray:
    result = np.zeros(size)
    result[: values.size] = values
    return result


def largest(spec: DEQ) -> float:
    """t^2 at rho = -1."""
    return float(Shape.of(spec.phi).square(np.array([np.pi]), spec.sigma_a2)[0])


def half_chord(one: Sequence[FloatArray | float], two: Sequence[FloatArray | float]) -> FloatArray:
    r""":math:`\frac12 |w_1/|w_1| - w_2/|w_2||^2` from the components of w_1 and w_2.

    Nothing cancels: its root is right to rounding. A vector 0 counts as its own unit vector.
    """
    total: FloatArray = np.zeros(1)
    (size1, size2) = (_norm(one), _norm(two))
    for a, b in zip(one, two, strict=True):
        total = total + (a / size1 - b / size2) ** 2
    return 0.5 * total


def _norm(parts: Sequence[FloatArray | float]) -> FloatArray:
    size: FloatArray = np.zeros(1)
    for part in parts:
        size = np.hypot(size, part)
    return np.where(size > 0.0, size, 1.0)


def pairs(
    spec: DEQ, q1: FloatArray, q2: FloatArray, gram: FloatArray, chord2: FloatArray, params: str
) -> tuple[FloatArray, FloatArray]:
    r"""CK and NTK for a list of pairs, with ``chord2`` = |x/|x| - y/|y||^2 for full accuracy.

    With s_i the roots of the variances, :math:`a = \sigma_a` and
    :math:`R_i = r_{max}^{1/2} (s_i + a^2 c m / r_{max})`,
    :math:`R_i^2 = \sigma_b^2 |x_i|^2 + A^2`,
    :math:`A^2 = \sigma_c^2 + a^2 c^2 + (a^2 c m)^2/r_{max}`,

    .. math:: t^2 s_1 s_2 = \tfrac12 \sigma_b^2 |x||y|\, |\hat x - \hat y|^2
       + (R_1 R_2 - \sigma_b^2 |x||y| - A^2) .

    The bracket is half of a squared distance of unit vectors times R_1 R_2, at any ratio of norms.
    """
    shape, a2 = Shape.of(spec.phi), spec.sigma_a2
    r_max, c = 1.0 - a2 * shape.top, shape.offset
    s1, s2 = variances(spec, q1), variances(spec, q2)
    n1, n2 = np.sqrt(spec.sigma_b2 * q1), np.sqrt(spec.sigma_b2 * q2)
    flat = math.sqrt(spec.sigma_c2 + a2 * c * c + (a2 * c * shape.mean) ** 2 / r_max)
    bracket = np.hypot(n1, flat) * np.hypot(n2, flat) * half_chord([n1, flat], [n2, flat])
    square = 0.5 * n1 * n2 * chord2 + bracket
    size = s1 * s2
    scaled = np.divide(square, size, out=np.full_like(size, r_max), where=size > 0)
    theta = solve_angle(shape, a2, np.minimum(scaled, largest(spec)))
    slope = shape.slope(theta)
    value = size * shape.product(theta) + c * c - c * shape.mean * (s1 + s2)
    top = value if params == "published" else value + (spec.sigma_b2 * gram + spec.sigma_c2) * slope
    return value, top / (1.0 - a2 * slope)
