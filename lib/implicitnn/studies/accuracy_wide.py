"""The study `accuracy` at the width of 4096, with fewer seeds (claim A9)."""

from __future__ import annotations

from dataclasses import replace

from implicitnn.studies import accuracy
from implicitnn.studies._classify import cells

STUDY = replace(
    accuracy.STUDY,
    name="accuracy_wide",
    grids={"paper": cells("full", (4096,), 100)},
    seeds={"paper": (0, 1, 2)},
    unchecked=("ridge_gap",),
)
