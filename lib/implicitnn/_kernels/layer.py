r"""Moments of one activation as functions of the variance.

:math:`S(v) = E\phi(\sqrt v\,\xi)^2`, its derivative, :math:`E\phi'(\sqrt v\,\xi)^2` and the Hermite
coefficients, for many variances at one time. Variances are taken decade by decade; the panels of
each decade are verified once (:mod:`implicitnn._kernels.rules`). Kinks end panels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn import gaussian
from implicitnn._gaussian import bends as _bends
from implicitnn._kernels import piecewise as _piecewise
from implicitnn._kernels import rules as _rules
from implicitnn._kernels.rules import Plan
from implicitnn.activations import elu
from implicitnn.specs import Centred

FloatArray = NDArray[np.float64]

# standard deviations beyond this many widths of a bend see it as a layer
NARROW = 5.0
# nodes times variances held at one time
LARGEST = 1 << 24


@dataclass(frozen=True)
class Layer:
    r"""phi = f - offset with kinks, in a form that asks for many variances at one time."""

    phi: Centred

    @cached_property
    def moved_kinks(self) -> tuple[float, ...]:
        """Kinks away from zero: their place in units of the standard deviation moves with v."""
        return tuple(self._moved.tolist())

    @cached_property
    def _moved(self) -> FloatArray:
        return _rules.moved_kinks(self.phi)

    @cached_property
    def corners(self) -> FloatArray | None:
        """Kinks and jumps when phi is piecewise linear, else None."""
        return _piecewise.corners(self.phi) if self.phi.kinks else None

    @cached_property
    def closed(self) -> bool:
        """Whether closed forms exist: piecewise linear, or ELU."""
        return self.corners is not None or self.phi.activation == elu

    @cached_property
    def width(self) -> float:
        """The length on which phi bends, at most 1; kinks do not count, their spacing does."""
        return _bends.bends(self.phi.activation).width

    def landmarks(self, variance: float) -> tuple[float, ...]:
        """Kinks, and where phi bends on a length far below the standard deviation."""
        if self.corners is not None or math.sqrt(variance) < NARROW * self.width:
            return self.phi.kinks
        found = _bends.bends(self.phi.activation)
        # both sides of a bend at 0 too: a peak there may be too narrow to be seen from 0 alone
        return tuple(np.union1d([-1.0, 0.0, 1.0, *self.phi.kinks], found.narrow()).tolist())

    def _groups(self, variance: FloatArray) -> list[tuple[NDArray[np.intp], Plan]]:
        """Variances that share their panels, in parts that fit in memory."""
        decade = _rules.decades(variance)
        plans: dict[Plan, list[NDArray[np.intp]]] = {}
        for power in np.unique(decade):
            plan = _rules.plan(self.phi, int(power))
            plans.setdefault(plan, []).append(np.nonzero(decade == power)[0])
        result = []
        for plan, parts in plans.items():
            rows = np.sort(np.concatenate(parts))
            size = (plan.edges.size + plan.t.size + len(self.moved_kinks)) * _rules.ORDER
            step = max(1, LARGEST // size)
            result += [(rows[k : k + step], plan) for k in range(0, rows.size, step)]
        return result

    def moments(self, variance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        r"""S(v), dS/dv and :math:`E\phi'^2`, each (m,); v > 0.

        Raises
        ------
        AccuracyError : phi is too rough at these variances.
        """
        result = np.empty((3, variance.size))
        for rows, plan in self._groups(variance):
            v = variance[rows]
            # an iteration that diverges overflows; the caller says so
            with np.errstate(over="ignore", invalid="ignore"):
                result[:, rows] = _rules.moments(self.phi, v, *plan.rule(self._moved, v))
        return result[0], result[1], result[2]

    def moments_and_stretch(
        self, variance: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        r"""The same, and :math:`E(t\phi'(t))^2` for t of these variances; each (m,)."""
        result = np.empty((4, variance.size))
        for rows, plan in self._groups(variance):
            v = variance[rows]
            with np.errstate(over="ignore", invalid="ignore"):
                result[:, rows] = _rules.moments_and_stretch(
                    self.phi, v, *plan.rule(self._moved, v)
                )
        return result[0], result[1], result[2], result[3]

    def hermite(self, variance: FloatArray, terms: int) -> FloatArray:
        """Orthonormal Hermite coefficients of phi, (m, terms)."""
        return self._hermite(self.phi, variance, terms)

    def hermite_slope(self, variance: FloatArray, terms: int) -> FloatArray:
        """The same of phi', whose k-th one is (k+1)^(1/2) v^(-1/2) times the next one of phi."""
        return self._hermite(self.phi.df, variance, terms)

    def _hermite(
        self, f: Callable[[FloatArray], FloatArray], variance: FloatArray, terms: int
    ) -> FloatArray:
        result = np.empty((variance.size, terms))
        for rows, plan in self._groups(variance):
            v = variance[rows]
            x, weight = plan.rule(self._moved, v)
            t = np.sqrt(v)[:, None] * x
            # one factor exp(-x^2/4) rides with he_k, the other stays in the weight
            half = f(t.ravel()).reshape(t.shape) * (weight * np.exp(0.25 * x * x))
            if not self.moved_kinks and not plan.t.size:
                result[rows] = half @ _shared_hermite(plan, terms).T
                continue
            for k, row in enumerate(rows):
                result[row] = gaussian.hermite_functions(x[k], terms - 1) @ half[k]
        return result


@lru_cache(maxsize=16)
def _shared_hermite(plan: Plan, terms: int) -> FloatArray:
    return gaussian.hermite_functions(plan.rule(np.empty(0), np.empty(0))[0][0], terms - 1)
