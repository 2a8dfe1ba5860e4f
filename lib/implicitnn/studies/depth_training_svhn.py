"""The experiments on SVHN (claim C8S): run where its files are, an empty study elsewhere."""

from __future__ import annotations

from implicitnn._data import inventory
from implicitnn._runs import project
from implicitnn.studies import _binary_images, depth_training
from implicitnn.sweeps import Study


def available() -> bool:
    """Return whether the files are on this machine, or rows were computed on another."""
    stored = project.results() / "depth_training_svhn.jsonl"
    return inventory.on_disk("svhn") or stored.is_file()


STUDY = Study(
    name="depth_training_svhn",
    row=depth_training.row,
    grids={
        "quick": [],
        "paper": depth_training.cells(("svhn",), "full", 1000, 2000, 500) if available() else [],
    },
    seeds={"quick": (0,), "paper": (0, 1, 2)},
    claims=("C8S",),
    rtol=1e-4,
    atol=1e-9,
    unchecked=depth_training.SENSITIVE,
    datasets=_binary_images.full_sets,
    cost=depth_training.cost,
)
