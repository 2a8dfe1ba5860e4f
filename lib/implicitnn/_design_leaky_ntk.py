r"""L-ReLU designs of the tangent kernel: two layers (never exact) and three.

With :math:`c = \pi - 2`, shares x, y, z of layers 1, 2, 3, W_1 counted l times and
:math:`\Lambda = L + l`,

.. math::
    b_1\tau_0^2 &= \Lambda T x y z, \\
    2 c\, b_2\tau_0^4 &= T\,(1 + z + y z - 3 x y z), \\
    c\, b_3\tau_0^4 &= T\,[(3+2l)(1-x) y z + (4+2l)(1-y) z x^2 + (5+2l)(1-z) x^2 y^2], \\
    \kappa^2 &= T\,[1 + e_3(1 + e_2(1 + l e_1))], \qquad e = (\pi - 2u)/c .

The first two give T and x; the last is then a quadratic equation for y; the third is scanned over
z and each change of sign is bracketed. Two layers: the same with one variable less, so that the
last equation is left over.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize

from implicitnn._design_layers import PI_LESS_2, l_relu_of_share
from implicitnn._design_targets import Solution, Wanted
from implicitnn._validate import FloatArray

_GRID = np.concatenate([np.geomspace(1e-3, 0.05, 60, endpoint=False), np.linspace(0.05, 1.0, 600)])


def solve(wanted: Wanted, layers: int) -> Solution:
    """Return the first solution of a scan, or the nearest point met."""
    shares_of = _three if layers == 3 else _two
    curves: list[Callable[[FloatArray], FloatArray]] = []
    for sign in (1.0, -1.0) if layers == 3 else (1.0,):
        curves.append(lambda z, sign=sign: shares_of(wanted, z, sign))  # type: ignore[misc]
    roots = [root for shares in curves for root in _roots(shares, wanted)]
    if roots:
        misses = [] if layers == 3 else _energy_miss(wanted, roots)
        roots = roots if layers == 3 else [min(roots, key=lambda r: abs(_energy(wanted, r) - 1.0))]
        nets = tuple(_build(wanted, root) for root in roots)
        reason = "four equations meet three unknowns" if misses else ""
        return Solution(nets[0], tuple(misses), reason, proved=True, others=nets[1:])
    return _nearest(wanted, curves, layers)


def _nearest(
    wanted: Wanted, curves: list[Callable[[FloatArray], FloatArray]], layers: int
) -> Solution:
    """Hold the other equations and bring the third as near as the scan gets."""
    rows = np.concatenate([curve(_GRID).T for curve in curves])
    rows = rows[~np.isnan(rows).any(axis=1)]
    name = wanted.names[2]
    if not rows.size:
        start = _build(wanted, [wanted.first ** (1.0 / layers)] * layers)
        misses = ((name, wanted.value(name, 0.0)),)
        return Solution(start, misses, "the first two equations exclude each other", proved=False)
    gaps = np.array([_third(wanted, row) for row in rows]) - wanted.third
    best = rows[int(np.argmin(np.abs(gaps)))]
    value = wanted.third + float(gaps[int(np.argmin(np.abs(gaps)))])
    misses = ((name, wanted.value(name, value)),)
    if layers == 2:
        misses = (*misses, *_energy_miss(wanted, [best]))
    return Solution(_build(wanted, best), misses, "a scan of all shares found no root", proved=False)
