"""Maps of what a family can reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicitnn import _validate
from implicitnn._design import grid as _design_grid
from implicitnn._design import solve as _design_solve
from implicitnn._design.solve import FAMILIES
from implicitnn._design.targets import wanted_ck, wanted_ntk
from implicitnn._rmt.coefficients import PARAMS, Coefficients, coefficients
from implicitnn._validate import FloatArray
from implicitnn.activations import Activation
from implicitnn.specs import DEQ


@dataclass(frozen=True)
class Grid:
    """DEQs for every activation and every sigma_a2 (sigma_b2 = 1 - sigma_a2), at one tau0."""

    activations: tuple[Activation, ...]
    sigma_a2: tuple[float, ...]
    tau0: float = 1.0

    def __init__(
        self, activations: Sequence[Activation], sigma_a2: Sequence[float], tau0: float = 1.0
    ) -> None:
        values = _validate.reals(sigma_a2, "sigma_a2")
        if not values or not all(0.0 <= value < 1.0 for value in values):
            raise ValueError(f"sigma_a2 must hold numbers in [0, 1), got {values}")
        kinds = tuple(activations)
        if not kinds or not all(isinstance(kind, Activation) for kind in kinds):
            raise TypeError(f"activations must hold Activation objects, got {activations!r}")
        object.__setattr__(self, "activations", kinds)
        object.__setattr__(self, "sigma_a2", values)
        object.__setattr__(self, "tau0", _validate.positive(tau0, "tau0"))


@dataclass(frozen=True)
class Reachability:
    """Which DEQs a family reaches.

    reached : (m, k) booleans, activations by sigma_a2 (or (m,) for a sequence of DEQs).
    well_posed : same shape; what is not well posed is not reached.
    layers : number of layers of the exact net, 0 where there is none.
    gap : largest miss relative to what is wanted: 0 where reached, NaN where not well posed.
    """

    reached: NDArray[np.bool_]
    well_posed: NDArray[np.bool_]
    layers: NDArray[np.int64]
    gap: FloatArray


def reachable(
    family: str,
    deqs: Grid | Sequence[DEQ],
    target: str = "ck",
    layers: int | None = None,
    *,
    params: str = "all",
) -> Reachability:
    r"""Return the map of the DEQs whose kernel a family reaches.

    The decision is that of `match`, by algebra; the coefficients of a `Grid` come from one
    vectorised quadrature for each activation. No net is built or measured.

    Parameters
    ----------
    family, layers, params : as in `match`.
    deqs : a Grid, or a sequence of DEQs.
    target : {"ck", "ntk"}

    Notes
    -----
    Raises what `match` raises.

    Examples
    --------
    >>> from implicitnn import activations
    >>> grid = Grid((activations.relu, activations.elu), (0.2, 0.84, 0.86))
    >>> reachable("leaky_relu", grid, layers=2).reached.tolist()
    [[True, True, False], [False, False, False]]
    """
    family = _validate.one_of(family, "family", FAMILIES)
    target = _validate.one_of(target, "target", ("ck", "ntk"))
    params = _validate.one_of(params, "params", PARAMS)
    count = _design_solve.check_layers(family, target == "ntk", layers)
    shape, cells = _cells(deqs, params)
    reached, posed = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    depth, gap = np.zeros(shape, dtype=np.int64), np.full(shape, np.nan)
    for place, (c, tau0) in enumerate(cells):
        if c is None:
            continue
        wanted = wanted_ck(c, tau0) if target == "ck" else wanted_ntk(c, tau0, params)
        _, found = _design_solve.solve(wanted, family, count)
        posed.flat[place], gap.flat[place] = True, _design_solve.gap(wanted, found)
        reached.flat[place] = found.exact
        depth.flat[place] = len(found.layers) if found.exact else 0
    return Reachability(reached, posed, depth, gap)


def _cells(
    deqs: Grid | Sequence[DEQ], params: str
) -> tuple[tuple[int, ...], Iterator[tuple[Coefficients | None, float]]]:
    """Shape of the map, and coefficients and tau0 of each cell in order."""
    if isinstance(deqs, Grid):
        sigma_a2, tau0 = np.array(deqs.sigma_a2), deqs.tau0
        rows = (_design_grid.coefficients(f, sigma_a2, tau0, params) for f in deqs.activations)
        shape = (len(deqs.activations), len(deqs.sigma_a2))
        return shape, ((c, tau0) for row in rows for c in row)
    if not isinstance(deqs, Sequence) or not deqs or not all(isinstance(d, DEQ) for d in deqs):
        raise TypeError(f"deqs must be a Grid or a non-empty sequence of DEQ, got {deqs!r}")
    return (len(deqs),), ((coefficients(deq, params), deq.tau0) for deq in deqs)
