"""The experiments at a larger width and with labels 0 and 1, one seed (claim C8, not counted)."""

from __future__ import annotations

from implicitnn.studies import _binary_images, depth_training
from implicitnn.studies.depth_training import SETS, cells
from implicitnn.sweeps import Study

_ONE = ("infinite",)

STUDY = Study(
    name="depth_training_variants",
    row=depth_training.row,
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
    rtol=1e-4,
    atol=1e-9,
    unchecked=depth_training.SENSITIVE,
    datasets=_binary_images.full_sets,
    cost=depth_training.cost,
)
