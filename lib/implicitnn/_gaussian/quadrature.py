"""Adaptive piecewise Gauss-Legendre integration of many integrals at one time.

Each panel is integrated with 16 and with 24 nodes, and the polynomial through the 24 is compared
with the integrand at the two ends, where a thin layer could hide from the nodes. A panel that fails
either comparison is halved. The panels of all integrals live in one pool, so every pass is a single
vectorised call.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn.errors import AccuracyError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
Integrand = Callable[[FloatArray, IntArray], FloatArray]

LOW, HIGH = 16, 24
END = 1e-8
END_WEIGHT = 0.004
MAX_DEPTH = 60
MAX_PANELS = 4096
MAX_PANELS_EACH = 128
PANEL_RTOL = 4e-15
NOISE_RTOL = 1e-8
STALLS = 3
# below this a number has lost its digits
NOTHING = 1e-300


@dataclass(frozen=True)
class Panels:
    """Panels [left, right], each belonging to the integral number ``owner``."""

    left: FloatArray
    right: FloatArray
    owner: IntArray

    @classmethod
    def between(cls, edges: FloatArray) -> Panels:
        """Panels between consecutive edges; a row of ``edges`` (sorted) for each integral."""
        rows = np.atleast_2d(edges)
        left, right = rows[:, :-1], rows[:, 1:]
        owner = np.broadcast_to(np.arange(rows.shape[0])[:, None], left.shape)
        keep = right > left
        return cls(left[keep], right[keep], owner[keep])

    def halves(self) -> Panels:
        """Each panel cut in two, the halves of one panel next to each other."""
        middle = 0.5 * (self.left + self.right)
        left = np.stack([self.left, middle], axis=1).ravel()
        right = np.stack([middle, self.right], axis=1).ravel()
        return Panels(left, right, np.repeat(self.owner, 2))

    def where(self, mask: NDArray[np.bool_]) -> Panels:
        """Return the panels selected by ``mask``."""
        return Panels(self.left[mask], self.right[mask], self.owner[mask])


@lru_cache(maxsize=1)
def _rule() -> tuple[FloatArray, FloatArray, FloatArray]:
    """Nodes (low, high, two ends), weights as columns (low, high), and the end defects.

    The columns of the last matrix give value minus extrapolated value at each end.
    """
    low, low_weights = np.polynomial.legendre.leggauss(LOW)
    high, high_weights = np.polynomial.legendre.leggauss(HIGH)
    ends = np.array([-1.0, 1.0]) * (1.0 - END)
    weights = np.zeros((LOW + HIGH + 2, 2))
    weights[:LOW, 0] = low_weights
    weights[LOW:-2, 1] = high_weights
    defects = np.zeros((LOW + HIGH + 2, 2))
    defects[-2:] = np.eye(2)
    legendre = np.polynomial.legendre.legvander
    scale = (2.0 * np.arange(HIGH) + 1.0) / 2.0
    defects[LOW:-2] = -high_weights[:, None] * (
        (legendre(high, HIGH - 1) * scale) @ legendre(ends, HIGH - 1).T
    )
    return np.concatenate([low, high, ends]), weights, defects * END_WEIGHT


def integrate(
    integrand: Integrand,
    panels: Panels,
    count: int,
    *,
    components: int = 1,
    scale: FloatArray | float = 0.0,
    rtol: float = PANEL_RTOL,
    settled: list[Panels] | None = None,
) -> tuple[FloatArray, FloatArray]:
    r"""Integrate ``components`` functions for each of ``count`` owners over the given panels.

    A panel is settled when the two orders agree to ``rtol`` of the panel's own
    :math:`\int |f|`, or to a quarter of that of the owner's whole :math:`\int |f|` (``scale`` is
    added to it). A panel whose halving brings no gain three times running, below 1e-8 of the whole,
    has reached the rounding noise of the integrand and is settled too.

    Parameters
    ----------
    integrand : maps nodes (P, q) and owners (P,) to values (components, P, q).
    settled : when given, the panels that were accepted are appended to it.

    Returns
    -------
    (integrals, absolute integrals), each of shape (components, count).

    Raises
    ------
    AccuracyError : refinement does not settle.
    """
    nodes, weights, defects = _rule()
    totals = np.zeros((components, count))
    masses = np.zeros((components, count))
    parent = np.full(panels.left.size, np.inf)
    stalls = np.zeros(panels.left.size, dtype=np.intp)
    for depth in range(MAX_DEPTH):
        half = 0.5 * (panels.right - panels.left)
        x = (0.5 * (panels.right + panels.left))[:, None] + half[:, None] * nodes
        with np.errstate(under="ignore"):  # far out the Gaussian density is 0
            values = integrand(x, panels.owner)
            sums = (values @ weights) * half[:, None]
            mass = (np.abs(values) @ weights[:, 1]) * half
            error = np.abs(sums[..., 1] - sums[..., 0])
            error = np.maximum(error, np.abs(values @ defects).max(axis=-1) * half)
        whole = masses + scale
        _add(whole, panels.owner, mass)
        whole_here = whole[:, panels.owner]
        good = (error <= rtol * mass + 0.25 * rtol * whole_here + NOTHING).all(axis=0)
        weighty = whole_here > NOTHING
        relative = np.divide(error, whole_here, out=np.zeros_like(error), where=weighty)
        ratio = relative.max(axis=0)
        if depth:
            pair = np.repeat(ratio.reshape(-1, 2).sum(axis=1), 2)
            stalls = np.where(pair >= 0.75 * parent, stalls + 1, 0)
            good |= (stalls >= STALLS) & (pair < NOISE_RTOL)
        _add(totals, panels.owner[good], sums[:, good, 1])
        _add(masses, panels.owner[good], mass[:, good])
        if settled is not None:
            settled.append(panels.where(good))
        if good.all():
            return totals, masses
        rest = ~good
        where = panels.where(rest)
        if 2 * where.left.size > MAX_PANELS + MAX_PANELS_EACH * count:
            break
        parent = np.repeat(ratio[rest], 2)
        stalls = np.repeat(stalls[rest], 2)
        panels = where.halves()
    worst = int(np.argmax(parent))
    raise AccuracyError(
        f"integration did not settle near {panels.left[worst]:.6g} (relative error "
        f"{parent[worst]:.1e}): the function is too rough there, or has an undeclared singularity"
    )


def _add(into: FloatArray, owner: IntArray, values: FloatArray) -> None:
    if into.shape[1] == 1:
        into[:, 0] += values.sum(axis=1)
        return
    for row, value in zip(into, values, strict=True):
        row += np.bincount(owner, weights=value, minlength=row.size)
