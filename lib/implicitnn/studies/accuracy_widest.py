"""The study `accuracy` at the width of 8192, with fewer seeds (claim A9)."""

from __future__ import annotations

from dataclasses import replace

from implicitnn.studies import accuracy
from implicitnn.studies._classify import cells

STUDY = replace(
    accuracy.STUDY,
    name="accuracy_widest",
    grids={"paper": cells("full", (8192,), 100)},
    seeds={"paper": (0,)},
    unchecked=("ridge_gap",),
)
