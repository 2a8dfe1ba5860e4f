"""The experiments at a larger width and with labels 0 and 1, one seed (claim C8, not counted)."""

from __future__ import annotations

from dataclasses import replace

from implicitnn.studies import depth_training
from implicitnn.studies.depth_training import SETS, cells

_ONE = ("infinite",)

STUDY = replace(
    depth_training.STUDY,
    name="depth_training_variants",
    grids={
        "quick": [
            *cells(("mnist",), "embedded", 80, 320, 100, _ONE),
            *cells(("mnist", "fashion_mnist"), "embedded", 80, 160, 100, _ONE, "zero-one"),
        ],
        "paper": [
            *cells(SETS, "full", 1000, 3000, 500, _ONE),
            *cells(SETS, "full", 1000, 2000, 500, _ONE, "zero-one"),
        ],
    },
    seeds={"quick": (0,), "paper": (0,)},
    claims=("C8",),
)
