"""The experiments on SVHN (claim C8S): run where its files are, an empty study elsewhere."""

from __future__ import annotations

from dataclasses import replace

from implicitnn._data import inventory
from implicitnn._runs import project
from implicitnn.studies import depth_training


def available() -> bool:
    """Return whether the files are on this machine, or rows were computed on another."""
    stored = project.results() / "depth_training_svhn.jsonl"
    return inventory.on_disk("svhn") or stored.is_file()


STUDY = replace(
    depth_training.STUDY,
    name="depth_training_svhn",
    grids={
        "quick": [],
        "paper": depth_training.cells(("svhn",), "full", 1000, 2000, 500) if available() else [],
    },
    claims=("C8S",),
)
