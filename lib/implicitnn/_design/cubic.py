r"""Two-layer designs with Hermite polynomials: the cubic family and the quadratic one.

With multipliers :math:`\lambda_1, \lambda_2, \lambda_3` of W_1, W_2 and the readout (0, 0, 1 for
the conjugate kernel), last-layer energy T, :math:`p = T u_2` and :math:`r = T w_2`,

.. math::
    b_1\tau_0^2 &= (\lambda_1+\lambda_2+\lambda_3)\, p u_1, \\
    2 b_2\tau_0^4 &= (\lambda_2+\lambda_3)\, p w_1 + \lambda_3 r k_1^2, \\
    b_3\tau_0^4 &= (2\lambda_1+\lambda_2+\lambda_3)\, p w_1
        + (2\lambda_1+2\lambda_2+\lambda_3)\, r u_1^2, \\
    \kappa^2 &= \lambda_3 T + (3T - 2p - r)(\lambda_2 + \lambda_1 e_1),

and the energy left for the third coefficient of the last layer, the slack T - p - r, must not be
negative. Layer 1 is given by :math:`R = w_1/u_1` and :math:`s = c_3/c_1`:
:math:`1/u_1 = 1 + R + s^2`, :math:`k_1/u_1 = 1 + 2R + \sqrt6\,s + 3s^2`,
:math:`e_1/u_1 = 1 + 2R + 3s^2`.

With :math:`P = p u_1`, which the first equation gives, the third gives
:math:`r u_1^2 = (b_3\tau_0^4 - M P R)/Q` and the second
:math:`k_1/u_1 = \pm\ell(R)`, a quadratic equation for s. So all solutions are four closed-form
curves over R; where a curve meets s = 0, layer 1 is quadratic, and R solves a cubic equation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from implicitnn._design.layers import hermite_of_shares, quadratic_of_shares
from implicitnn._design.targets import Wanted
from implicitnn._validate import FloatArray
from implicitnn.activations import Activation

_SQRT6 = math.sqrt(6.0)
_ENOUGH = -1e-14
_GRID = 400
_NOTHING = 1e-18
_LARGEST_RATIO = 1e6
_SIGNS = ((1.0, 1.0), (1.0, -1.0), (-1.0, 1.0), (-1.0, -1.0))


@dataclass(frozen=True)
class System:
    """The equations as P, X = b_2 part, Y = b_3 part, and the sums of multipliers in them."""

    head: float
    second: float
    third: float
    first_weight: int
    second_weight: int
    readout: int

    @property
    def even(self) -> int:
        """Factor of p w_1 in b_2."""
        return self.second_weight + self.readout

    @property
    def bend(self) -> int:
        """Factor of p w_1 in b_3."""
        return 2 * self.first_weight + self.second_weight + self.readout

    @property
    def last(self) -> int:
        """Factor of r u_1^2 in b_3."""
        return self.bend + self.second_weight

    @property
    def largest_ratio(self) -> float:
        """R at which b_3 leaves nothing for r."""
        return self.third / (self.bend * self.head) if self.head > 0.0 else math.inf

    def level2(self, ratio: FloatArray) -> FloatArray:
        """(k_1/u_1)^2 as the second and third equation want it."""
        above = self.last * (self.second - self.even * self.head * ratio)
        below = self.readout * (self.third - self.bend * self.head * ratio)
        return np.asarray(above / below)


@dataclass(frozen=True)
class Curve:
    """Points that satisfy the first three equations: R, s, and p, r, T; arrays of one shape."""

    ratio: FloatArray
    s: FloatArray
    p: FloatArray
    r: FloatArray
    energy: FloatArray

    @property
    def slack(self) -> FloatArray:
        """Energy left for the third coefficient of the last layer; NaN off the curve."""
        return self.energy - self.p - self.r


def system(wanted: Wanted, weights: tuple[int, int, int]) -> System:
    """Scale the wanted numbers by the energy; weights of W_1, W_2 and the readout."""
    first = wanted.first if wanted.first > _NOTHING else 0.0
    return System(first / sum(weights), wanted.second, wanted.third, *weights)


def complete(q: System, ratio: FloatArray, s: FloatArray) -> Curve:
    """Fill p, r and T for given first layers."""
    inverse = 1.0 + ratio + s * s
    p = q.head * inverse
    r = np.maximum(q.third - q.bend * q.head * ratio, 0.0) / q.last * inverse**2
    gain = q.second_weight + q.first_weight * (1.0 + 2.0 * ratio + 3.0 * s * s) / inverse
    energy = (1.0 + (2.0 * p + r) * gain) / (q.readout + 3.0 * gain)
    return Curve(ratio, s, p, r, energy)


def curve(q: System, ratio: FloatArray, signs: tuple[float, float]) -> Curve:
    """One of the four curves: sign of k_1, and which root s."""
    with np.errstate(invalid="ignore", divide="ignore"):
        level = signs[0] * np.sqrt(q.level2(ratio))
        c = 1.0 + 2.0 * ratio - level
        root = _SQRT6 + signs[1] * np.sqrt(6.0 - 12.0 * c)
        # Both roots without cancellation: the small one from the product of the two.
        s = -root / 6.0 if signs[1] > 0 else -2.0 * c / (_SQRT6 + np.sqrt(6.0 - 12.0 * c))
        return complete(q, ratio, s)


def quadratic_points(q: System) -> Curve:
    """Return the points with a quadratic first layer, the most linear first.

    R solves q (1 + 2R)^2 (Y - M P R) = Q (X - m P R), a cubic all of whose roots are taken.
    """
    left = q.readout * np.convolve([4.0, 4.0, 1.0], [-q.bend * q.head, q.third])
    right = q.last * np.array([0.0, 0.0, -q.even * q.head, q.second])
    polynomial = np.trim_zeros(left - right, "f")
    roots = _real_roots(polynomial) if polynomial.size > 1 else []
    top = min(q.largest_ratio * (1.0 + 1e-15), _LARGEST_RATIO)
    inside = sorted(x for x in roots if -1e-15 <= x <= top)
    ratio = np.maximum(np.array(inside), 0.0)
    return complete(q, ratio, np.zeros_like(ratio))


def _real_roots(polynomial: FloatArray) -> list[float]:
    """Return the real roots, polished by Newton's method."""
    derivative = np.polyder(polynomial)
    size = np.abs(polynomial).max()
    roots = []
    for root in np.roots(polynomial):
        x = float(root.real)
        if abs(root.imag) > 1e-6 * max(1.0, abs(x)):
            continue
        for _ in range(4):
            slope = float(np.polyval(derivative, x))
            x -= float(np.polyval(polynomial, x)) / slope if abs(slope) > 1e-9 * size else 0.0
        if abs(float(np.polyval(polynomial, x))) <= 1e-14 * size * max(1.0, abs(x)) ** 3:
            roots.append(x)
    return roots


def choose(q: System) -> tuple[Curve, bool] | None:
    """Return the point chosen (arrays of one element), and whether its slack is enough.

    First the quadratic first layer, then the odd one, then the point of largest slack. None when
    no first layer gives the level that is wanted.
    """
    for candidates in (quadratic_points(q), _odd(q)):
        good = np.flatnonzero(candidates.slack >= _ENOUGH)
        if good.size:
            return pick(candidates, int(good[0])), True
    best = _roomiest(q)
    return None if best is None else (best, bool(best.slack[0] >= _ENOUGH))


def _odd(q: System) -> Curve:
    """Odd first layers, the most linear first."""
    curves = [curve(q, np.zeros(1), signs) for signs in _SIGNS]
    points = _join(curves)
    order = np.argsort(np.abs(points.s))
    return Curve(*(np.asarray(getattr(points, name))[order] for name in vars(points)))


def _join(curves: list[Curve]) -> Curve:
    return Curve(*(np.concatenate([getattr(c, name) for c in curves]) for name in vars(curves[0])))


def pick(points: Curve, index: int) -> Curve:
    return Curve(*(np.asarray(getattr(points, name))[index : index + 1] for name in vars(points)))


def _roomiest(q: System) -> Curve | None:
    """Largest slack over the four curves: a grid in R, then a bounded refinement."""
    top = min(q.largest_ratio, 1e3)
    grid = top * np.linspace(0.0, 1.0, _GRID, endpoint=False) ** 2
    best: Curve | None = None
    for signs in _SIGNS:
        points = curve(q, grid, signs)
        slack = np.where(np.isnan(points.slack), -np.inf, points.slack)
        index = int(np.argmax(slack))
        if slack[index] == -np.inf:
            continue
        low, high = grid[max(index - 1, 0)], grid[min(index + 1, _GRID - 1)]
        for candidate in (pick(points, index), _refine(q, float(low), float(high), signs)):
            if best is None or not candidate.slack[0] <= best.slack[0]:
                best = candidate if not np.isnan(candidate.slack[0]) else best
    return best


def _refine(q: System, low: float, high: float, signs: tuple[float, float]) -> Curve:
    def loss(ratio: float) -> float:
        slack = float(curve(q, np.array([ratio]), signs).slack[0])
        return 1e3 if math.isnan(slack) else -slack

    found = optimize.minimize_scalar(loss, bounds=(low, high), options={"xatol": 1e-13})
    return curve(q, np.array([float(found.x)]), signs)


def layers_of(
    points: Curve, index: int, wanted: Wanted, sign: float = 1.0
) -> tuple[Activation, Activation]:
    """Build the two layers of a point; layer 1 has c_1 = tau0, which is slope one in t.

    ``sign`` is that of c_3 of the last layer, which no equation sees.
    """
    ratio, s, p, r, energy = (float(getattr(points, name)[index]) for name in vars(points))
    tau0 = wanted.tau0
    u = 1.0 / (1.0 + ratio + s * s)
    first_energy = tau0**2 / u
    first = hermite_of_shares(u, ratio * u, math.copysign(s * s * u, s), first_energy, tau0)
    rest = max(energy - p - r, 0.0)
    top = p + r + rest
    last = hermite_of_shares(
        p / top,
        r / top,
        math.copysign(rest / top, sign),
        top * wanted.energy,
        math.sqrt(first_energy),
    )
    return first, last


def quadratic_layers(points: Curve, index: int, wanted: Wanted) -> tuple[Activation, Activation]:
    """Build two quadratic layers of a point with s = 0; the slack is left out."""
    ratio, _, p, r, _ = (float(getattr(points, name)[index]) for name in vars(points))
    u, tau0 = 1.0 / (1.0 + ratio), wanted.tau0
    first_energy = tau0**2 / u
    first = quadratic_of_shares(u, ratio * u, first_energy, tau0)
    top = p + r
    tau1 = math.sqrt(first_energy)
    return first, quadratic_of_shares(p / top, r / top, top * wanted.energy, tau1)
