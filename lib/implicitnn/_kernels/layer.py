r"""Moments of one activation as functions of the variance, on a fixed piecewise rule.

:math:`S(v) = E\phi(\sqrt v\,\xi)^2`, its derivative, :math:`E\phi'(\sqrt v\,\xi)^2` and the Hermite
coefficients, for many variances at one time. The rule is finer near zero, where the activations
bend, and its panels end at the kinks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn import gaussian
from implicitnn._kernels import piecewise as _piecewise
from implicitnn.activations import elu
from implicitnn.specs import Centred

FloatArray = NDArray[np.float64]

ORDER = 20
_HALF = (0.03, 0.1, 0.25, 0.5, 1.0, 1.75, 2.5, 3.5, 4.5, 5.5, 6.5, 8.0, 10.0, 13.0)
_EDGES = np.array([-x for x in reversed(_HALF)] + [0.0, *_HALF])
_INV_SQRT_2PI = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class Layer:
    r"""phi = f - offset with kinks, in a form that asks for many variances at one time."""

    phi: Centred

    @cached_property
    def moved_kinks(self) -> tuple[float, ...]:
        """Kinks away from zero: their place in units of the standard deviation moves with v."""
        return tuple(kink for kink in self.phi.kinks if kink != 0.0)

    @cached_property
    def corners(self) -> FloatArray | None:
        """Kinks and jumps when phi is piecewise linear, else None."""
        return _piecewise.corners(self.phi) if self.phi.kinks else None

    @cached_property
    def closed(self) -> bool:
        """Whether closed forms exist: piecewise linear, or ELU."""
        return self.corners is not None or self.phi.activation == elu

    def nodes(self, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Nodes and weights of N(0, 1), each (1, P) or (m, P) when kinks move with the variance."""
        if not self.moved_kinks:
            return _shared_rule()
        scale = np.sqrt(np.maximum(variance, 1e-300))[:, None]
        kinks = np.clip(np.array(self.moved_kinks)[None, :] / scale, _EDGES[0], _EDGES[-1])
        fixed = np.broadcast_to(_EDGES, (variance.size, _EDGES.size))
        return _rule(np.sort(np.concatenate([fixed, kinks], axis=1), axis=1))

    def moments(self, variance: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        r"""S(v), dS/dv and :math:`E\phi'^2`, each (m,); v > 0."""
        x, weight = self.nodes(variance)
        t = np.sqrt(variance)[:, None] * x
        square = self.phi(t.ravel()).reshape(t.shape) ** 2 * weight
        slope = self.phi.df(t.ravel()).reshape(t.shape) ** 2 * weight
        bend = (square * (x * x - 1.0)).sum(axis=1) / (2.0 * variance)
        return square.sum(axis=1), bend, slope.sum(axis=1)

    def hermite(self, variance: FloatArray, terms: int) -> FloatArray:
        """Orthonormal Hermite coefficients of phi, (m, terms)."""
        return self._hermite(self.phi, variance, terms)

    def hermite_slope(self, variance: FloatArray, terms: int) -> FloatArray:
        """The same of phi', whose k-th one is (k+1)^(1/2) v^(-1/2) times the next one of phi."""
        return self._hermite(self.phi.df, variance, terms)

    def _hermite(
        self, f: Callable[[FloatArray], FloatArray], variance: FloatArray, terms: int
    ) -> FloatArray:
        x, weight = self.nodes(variance)
        t = np.sqrt(variance)[:, None] * x
        # one factor exp(-x^2/4) rides with he_k, the other stays in the weight
        half = f(t.ravel()).reshape(t.shape) * (weight * np.exp(0.25 * x * x))
        if x.shape[0] == 1:
            return np.asarray(half @ _shared_hermite(terms).T)
        result = np.empty((variance.size, terms))
        for row in range(variance.size):
            result[row] = gaussian.hermite_functions(x[row], terms - 1) @ half[row]
        return result


def _rule(edges: FloatArray) -> tuple[FloatArray, FloatArray]:
    nodes, weights = np.polynomial.legendre.leggauss(ORDER)
    half = 0.5 * np.diff(edges, axis=1)[:, :, None]
    middle = 0.5 * (edges[:, 1:] + edges[:, :-1])[:, :, None]
    x = (middle + half * nodes).reshape(edges.shape[0], -1)
    w = (half * weights).reshape(edges.shape[0], -1)
    return x, w * np.exp(-0.5 * x * x) * _INV_SQRT_2PI


@lru_cache(maxsize=1)
def _shared_rule() -> tuple[FloatArray, FloatArray]:
    return _rule(_EDGES[None, :])


@lru_cache(maxsize=16)
def _shared_hermite(terms: int) -> FloatArray:
    return gaussian.hermite_functions(_shared_rule()[0][0], terms - 1)
