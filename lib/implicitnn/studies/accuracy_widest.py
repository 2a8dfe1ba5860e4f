"""The study `accuracy` at the width of 8192, with fewer seeds (claim A9)."""

from __future__ import annotations

from collections.abc import Mapping

from implicitnn.studies import accuracy
from implicitnn.studies._classify import cells, needed
from implicitnn.sweeps import Study


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return what `accuracy.row` returns.

    Examples
    --------
    >>> cell = {"data": "mnist", "source": "embedded", "model": "tanh", "width": 16}
    >>> row(cell | {"n": 200, "n_test": 100, "epochs": 1, "lr": 1.0}, 0)["not_converged"]
    0
    """
    return accuracy.row(settings, seed)


STUDY = Study(
    name="accuracy_widest",
    row=row,
    grids={"paper": cells("full", (8192,), 100)},
    seeds={"paper": (0,)},
    claims=("A9",),
    datasets=needed,
    rtol=0.0,
    atol=0.1,
    unchecked=("ridge_gap",),
    cost=accuracy.cost,
)
