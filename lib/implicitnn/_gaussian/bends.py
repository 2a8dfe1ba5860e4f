r"""Where an activation bends: panels on which f and f' are polynomials of degree 19, to 1e-12."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn.activations import Activation, shipped

FloatArray = NDArray[np.float64]
ORDER = 20
RANGE = 21.0
# points of the scan: 1/3000 apart
POINTS = 1 << 17
FEWEST = 32
COARSE, COARSEST = 16, 2.625
LOCAL, GLOBAL = 1e-12, 1e-13
ORDINARY = 0.6
MARKS = 16
WINDOW = 14.0  # standard deviations that an expectation covers
MOST_CUTS = 512


@dataclass(frozen=True, eq=False)
class Bends:
    """Edges of the panels; the largest |f| and |f'| met; the length on which phi bends."""

    edges: FloatArray
    size: float
    slope: float
    width: float

    def narrow(self) -> FloatArray:
        """Edges of the narrowest panels, at most 16 of them; none where no bend is narrow."""
        if self.width == 1.0:
            return np.empty(0)
        length = np.diff(self.edges)
        close = length <= 2.0 * length.min()
        places = np.unique(np.concatenate([self.edges[:-1][close], self.edges[1:][close]]))
        step = -(-places.size // MARKS)
        return places[::step]


@lru_cache(maxsize=256)
def bends(activation: Activation) -> Bends:
    """Scan f and f' on |t| <= 21, or up to twice the largest kink where that is further out.

    Panels between kinks are halved until the polynomial through 20 nodes agrees with the function
    on the points of the scan; panels of the size of their spacing are left as they are.
    """
    reach = max(RANGE, 2.0 * max(map(abs, activation.kinks), default=0.0))
    with np.errstate(all="ignore"):  # what is not finite counts as not resolved
        return _scan(activation, reach)


def cuts(activation: Activation, tau: float) -> tuple[float, ...]:
    r"""Where expectations at the scale tau are cut: the kinks, and the edges of all narrow bends.

    Bends shorter than tau/2 count. The scan goes as far as expectations do, 14 tau; beyond |t| = 21
    its points are up to tau/2300 apart. A shipped activation has no narrow bend but its kinks.
    """
    if shipped(activation):
        return activation.kinks
    power = max(0, math.ceil(math.log2(WINDOW * tau / RANGE))) if tau > 0.0 else 0
    shortest, edges = _edges(activation, power)
    return activation.kinks if shortest >= 0.5 * tau else edges


@lru_cache(maxsize=256)
def _edges(activation: Activation, power: int) -> tuple[float, tuple[float, ...]]:
    """The shortest panel, and the edges with the kinks, scanned up to |t| = 21 * 2^power."""
    found = bends(activation).edges
    reach = RANGE * 2.0**power
    if reach > found[-1]:
        with np.errstate(all="ignore"):
            found = np.union1d(found, _scan(activation, reach).edges)
    step = -(-found.size // MOST_CUTS)
    places = np.union1d(found[::step], np.array(activation.kinks))
    return float(np.diff(found).min()), tuple(places.tolist())


def _scan(activation: Activation, reach: float) -> Bends:
    kinks = np.array(activation.kinks)
    edges = np.union1d(np.linspace(-reach, reach, COARSE + 1), kinks)
    left, right = edges[:-1], edges[1:]
    count, shortest = POINTS // COARSE, COARSEST
    done, largest = [edges], np.zeros(2)
    while count >= FEWEST:
        nodes, through = _fit(count)
        middle, half = 0.5 * (left + right), 0.5 * (right - left)
        t = middle[:, None] + half[:, None] * nodes
        bad = np.zeros(left.size, dtype=bool)
        for number, function in enumerate((activation.f, activation.df)):
            values = np.asarray(function(t.ravel()), dtype=np.float64).reshape(t.shape)
            most = np.abs(values).max(axis=1)
            largest[number] = max(largest[number], most.max())
            gap = np.abs(values[:, ORDER:] - values[:, :ORDER] @ through).max(axis=1)
            # not (below): what is not finite is not resolved
            bad |= ~(gap <= LOCAL * most + GLOBAL * largest[number])
        if not bad.any():
            break
        left, middle, right = left[bad], middle[bad], right[bad]
        done.append(middle)
        shortest = float(np.min(right - left)) / 2.0
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        count //= 2
    bend = 1.0 if shortest >= ORDINARY else 0.1 * shortest
    spacing = float(np.diff(kinks).min(initial=1.0))
    size, slope = (float(part) for part in largest)
    return Bends(np.unique(np.concatenate(done)), size, slope, min(1.0, bend, spacing))


@lru_cache(maxsize=16)
def _fit(count: int) -> tuple[FloatArray, FloatArray]:
    """Nodes and scan points together; the matrix from values at the nodes to the polynomial."""
    nodes, weights = np.polynomial.legendre.leggauss(ORDER)
    points = (2.0 * np.arange(count) + 1.0) / count - 1.0
    legendre = np.polynomial.legendre.legvander
    scale = (2.0 * np.arange(ORDER) + 1.0) / 2.0
    through = weights[:, None] * (
        (legendre(nodes, ORDER - 1) * scale) @ legendre(points, ORDER - 1).T
    )
    return np.concatenate([nodes, points]), through
