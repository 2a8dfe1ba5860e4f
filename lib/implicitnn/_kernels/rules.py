r"""Rules of quadrature for one activation and one decade of variances, each verified once.

The rule is the first of these that gives :math:`E\phi^2`, its derivative and :math:`E\phi'^2` at
the ends and the middle of the decade as an adaptive integration does:

1. fixed panels in units of the standard deviation;
2. the same, refined geometrically towards 0 until they resolve a bend there;
3. the panels at which the adaptive integration arrived, fixed in t.

The adaptive integration starts from the bends that a scan of f and f' on a fine grid finds, so a
narrow feature away from 0 is not passed over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn._gaussian.bends import bends
from implicitnn._gaussian.quadrature import IntArray, Panels, integrate
from implicitnn.errors import AccuracyError
from implicitnn.specs import Centred

FloatArray = NDArray[np.float64]

ORDER = 20
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(ORDER)
_HALF = (0.03, 0.1, 0.25, 0.5, 1.0, 1.75, 2.5, 3.5, 4.5, 5.5, 6.5, 8.0, 10.0, 13.0)
EDGES = np.array([-x for x in reversed(_HALF)] + [0.0, *_HALF])
_INV_SQRT_2PI = 1.0 / np.sqrt(2.0 * np.pi)
# decades of the variance that are told apart
LOWEST, HIGHEST = -12, 40
GOOD, LIMIT = 1e-12, 1e-10
# bends at 0 of width 1, and of width 1/3000, in units of the standard deviation 10^(decade/2)
INNERMOST = (0.2, 5e-5)
GRADING = 4.0
# the adaptive integration; rounding of f and f' relative to their largest values
RTOL, NOISE = 1e-13, 1e-14


@dataclass(frozen=True, eq=False)
class Plan:
    """Panels for one decade: fixed in units of the standard deviation, or (t) in those of t too."""

    edges: FloatArray
    t: FloatArray

    def rule(self, kinks: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Nodes and weights of N(0, 1), (1, P), or (m, P) when panels move with the variance."""
        if not kinks.size and not self.t.size:
            return _shared(self)
        scale = np.sqrt(np.maximum(variance, 1e-300))[:, None]
        places = np.concatenate([kinks, self.t])
        with np.errstate(over="ignore"):  # far beyond the last panel is clipped to its end
            moved = np.clip(places[None, :] / scale, EDGES[0], EDGES[-1])
        fixed = np.broadcast_to(self.edges, (variance.size, self.edges.size))
        return rule(np.sort(np.concatenate([fixed, moved], axis=1), axis=1))


_NONE = np.empty(0)
STANDARD = Plan(EDGES, _NONE)


def rule(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes of every panel between ``edges`` (m, k), and weights of N(0, 1)."""
    half = 0.5 * np.diff(edges, axis=1)[:, :, None]
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None]
    x = (middle + half * _NODES).reshape(edges.shape[0], -1)
    w = (half * _WEIGHTS).reshape(edges.shape[0], -1)
    return x, w * np.exp(-0.5 * x * x) * _INV_SQRT_2PI


@lru_cache(maxsize=64)
def _shared(plan: Plan) -> tuple[FloatArray, FloatArray]:
    return rule(plan.edges[None, :])


def decades(variance: FloatArray) -> NDArray[np.int64]:
    """Decade of each variance."""
    power = np.floor(np.log10(np.maximum(variance, 1e-300)))
    return np.clip(power, LOWEST, HIGHEST).astype(np.int64)


def moments(
    phi: Centred, variance: FloatArray, x: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""S(v), dS/dv and :math:`E\phi'^2` by one rule; each (m,)."""
    return _sums(variance, x, *_squares(phi, variance, x, weight)[1:])


def moments_and_stretch(
    phi: Centred, variance: FloatArray, x: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    r"""The same, and :math:`E(t\phi'(t))^2`."""
    t, square, slope = _squares(phi, variance, x, weight)
    return *_sums(variance, x, square, slope), (t * t * slope).sum(axis=1)


def _squares(
    phi: Centred, variance: FloatArray, x: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The nodes t, and phi^2 and phi'^2 there with their weights; each (m, P)."""
    t = np.sqrt(variance)[:, None] * x
    square = phi(t.ravel()).reshape(t.shape) ** 2 * weight
    slope = phi.df(t.ravel()).reshape(t.shape) ** 2 * weight
    return t, square, slope


def _sums(
    variance: FloatArray, x: FloatArray, square: FloatArray, slope: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    bend = (square * (x * x - 1.0)).sum(axis=1) / (2.0 * variance)
    return square.sum(axis=1), bend, slope.sum(axis=1)


@lru_cache(maxsize=1024)
def plan(phi: Centred, decade: int) -> Plan:
    r"""The cheapest panels that are right for variances in this decade.

    Raises
    ------
    AccuracyError : no panels reproduce the adaptive integration, or that does not settle.
    """
    with np.errstate(all="ignore"):  # what is not finite is left to the caller, who names it
        return _plan(phi, decade)


def _plan(phi: Centred, decade: int) -> Plan:
    variance = 10.0 ** (decade + np.array([0.0, 0.5, 1.0]))
    kinks = moved_kinks(phi)
    first = moments(phi, variance, *STANDARD.rule(kinks, variance))
    if not np.isfinite(np.stack(first)).all():
        return STANDARD
    reference, panels = _reference(phi, variance, kinks)
    candidates = [STANDARD]
    if not kinks.size:
        candidates += [_graded(width / float(np.sqrt(variance[-1]))) for width in INNERMOST]
    candidates.append(_settled(panels, variance))
    errors = []
    for candidate in candidates:
        found = moments(phi, variance, *candidate.rule(kinks, variance))
        errors.append(_error(found, reference, variance, phi))
        if errors[-1] <= GOOD:
            return candidate
    best = int(np.argmin(errors))
    if not errors[best] <= LIMIT:
        raise AccuracyError(
            f"{phi.activation.name}: its moments at variances from {variance[0]:.0e} to "
            f"{variance[-1]:.0e} are known only to {errors[best]:.1e}, {LIMIT:g} is needed; it is "
            "too rough at this scale of the data"
        )
    return candidates[best]


def moved_kinks(phi: Centred) -> FloatArray:
    """Kinks away from zero: their place in units of the standard deviation moves with v."""
    return np.array([kink for kink in phi.kinks if kink != 0.0])


def _graded(innermost: float) -> Plan:
    steps = int(np.ceil(np.log(EDGES[-1] / innermost) / np.log(GRADING)))
    inner = innermost * GRADING ** np.arange(max(0, steps))
    inner = inner[inner < _HALF[0] / 2.0]
    return Plan(np.unique(np.concatenate([EDGES, inner, -inner])), _NONE)


def _settled(panels: Panels, variance: FloatArray) -> Plan:
    """The edges, in t, of all panels at which the adaptive integration arrived."""
    owner = np.tile(panels.owner, 2)
    x = np.concatenate([panels.left, panels.right])
    new = ~np.isin(x, EDGES)
    return Plan(EDGES, np.unique(x[new] * np.sqrt(variance)[owner[new]]))


def _reference(
    phi: Centred, variance: FloatArray, kinks: FloatArray
) -> tuple[tuple[FloatArray, FloatArray, FloatArray], Panels]:
    """The three moments by adaptive integration, and its last panels."""
    sd = np.sqrt(variance)
    found = bends(phi.activation)
    places = np.concatenate([kinks, found.edges])
    moved = np.clip(places[None, :] / sd[:, None], EDGES[0], EDGES[-1])
    fixed = np.broadcast_to(EDGES, (variance.size, EDGES.size))
    start = Panels.between(np.sort(np.concatenate([fixed, moved], axis=1), axis=1))

    def integrand(x: FloatArray, owner: IntArray) -> FloatArray:
        t = sd[owner, None] * x
        value = phi(t.ravel()).reshape(x.shape)
        slope = phi.df(t.ravel()).reshape(x.shape)
        density = np.exp(-0.5 * x * x) * _INV_SQRT_2PI
        square = value * value
        # the functions themselves ride along: where they are steep their squares are refined too
        rows = np.stack([square, (x * x - 1.0) * square, slope * slope, value, slope])
        return np.asarray(rows * density)

    noise = np.array([found.size, found.size, found.slope]) * NOISE
    scale = np.concatenate([noise**2, noise[1:]])[:, None]
    settled: list[Panels] = []
    try:
        totals, _ = integrate(
            integrand, start, variance.size, components=5, scale=scale, rtol=RTOL, settled=settled
        )
    except AccuracyError as problem:
        raise AccuracyError(
            f"{phi.activation.name}: its moments at variances from {variance[0]:.0e} to "
            f"{variance[-1]:.0e} cannot be taken: {problem}"
        ) from problem
    panels = Panels(
        np.concatenate([part.left for part in settled]),
        np.concatenate([part.right for part in settled]),
        np.concatenate([part.owner for part in settled]),
    )
    return (totals[0], totals[1] / (2.0 * variance), totals[2]), panels


def _error(
    found: tuple[FloatArray, FloatArray, FloatArray],
    reference: tuple[FloatArray, FloatArray, FloatArray],
    variance: FloatArray,
    phi: Centred,
) -> float:
    """Largest relative error, beyond what the digits of f and of the constant allow."""
    energy, bend, slope = (np.abs(a - b) for a, b in zip(found, reference, strict=True))
    size = bends(phi.activation)
    floor = np.maximum(reference[0], (NOISE * max(size.size, abs(phi.offset))) ** 2)
    steep = np.maximum(reference[2], (NOISE * size.slope) ** 2)
    lost = NOISE * abs(phi.offset) / np.sqrt(floor)
    first = np.maximum(energy, bend * variance) / floor - lost
    return float(np.max([first, slope / steep], initial=0.0))
