r"""Study of the edge in gamma: where training leaves well-posedness (claim C5).

Classes 0 and 1, the start of the experiments (W with N(0, 1/m), A = I, b = 0) and eta = 1/N. Labels
are -1 and 1, or 0 and 1. ``strategy`` is ``fixed`` or ``each epoch``; the latter chooses
:math:`\gamma_k = \gamma/\lVert A_k\rVert` before each forward pass.
The iterations counted are those of the network's own map.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._validate import integer, real
from implicitnn.infinite_depth import Params
from implicitnn.studies import _binary_images
from implicitnn.sweeps import Study

GAMMAS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return how training ended.

    ``left_epoch`` is the epoch that left well-posedness, -1 when none did, and ``left_rate`` the
    value there. ``rises`` counts the epochs in which the loss grew, ``peak`` is the largest loss
    over the first, ``loss_ratio`` the last over the first, ``largest_rate`` the largest recorded
    gamma ||A||. ``train_seconds`` is measured.
    """
    N, m, epochs = (integer(settings[key], key, 1) for key in ("N", "m", "epochs"))
    gamma = real(settings["gamma"], "gamma")
    train, _ = _binary_images.draw(
        str(settings["dataset"]), N, seed, source=str(settings["source"]),
        labels=str(settings["labels"]),
    )  # fmt: skip
    start = deep.identity(train.X.shape[1], m, gamma, np.random.default_rng([seed, m]))
    started = time.perf_counter()
    run = deep.descend(
        Params(start.W, start.A, start.b, gamma), train.X, train.y, 1 / N, epochs,
        each_epoch=gamma if settings["strategy"] == "each epoch" else None,
        tol=1e-8, record_every=max(1, epochs // 30), split=False,
    )  # fmt: skip
    losses = run.losses
    return {
        "status": run.status.name,
        "left_epoch": run.left[0].epoch if run.left else -1,
        "left_rate": run.left[0].rate if run.left else 0.0,
        "rises": int((np.diff(losses) > 1e-12 * losses[0]).sum()),
        "peak": float(losses.max() / losses[0]),
        "loss_ratio": float(losses[-1] / losses[0]),
        "largest_rate": float(run.trace.rate.max()),
        "iterations_first": float(run.iterations[0]),
        "iterations_largest": float(run.iterations.max()),
        "iterations_last": float(run.iterations[-1]),
        "train_seconds": time.perf_counter() - started,
    }


def _grid(
    source: str, N: int, m: int, epochs: int, gammas: tuple[float, ...]
) -> list[dict[str, object]]:
    size = {"dataset": "mnist", "source": source, "N": N, "m": m, "epochs": epochs}
    fixed = [
        size | {"labels": labels, "gamma": gamma, "strategy": "fixed"}
        for labels in _binary_images.LABELS
        for gamma in gammas
    ]
    renewed = [
        size | {"labels": "signs", "gamma": gamma, "strategy": "each epoch"}
        for gamma in (0.1, 0.5, 0.9)
    ]
    return fixed + renewed


STUDY = Study(
    name="gamma_edge",
    row=row,
    grids={
        "quick": _grid("embedded", 60, 90, 60, (0.1, 0.5, 0.9)),
        "paper": _grid("full", 500, 600, 150, GAMMAS),
    },
    seeds={"quick": (0,), "paper": (0, 1, 2)},
    claims=("C5",),
    # Beyond the edge of stability trajectories magnify rounding.
    rtol=0.05,
    atol=1e-6,
    unchecked=("train_seconds", "rises", "peak", "loss_ratio", "left_rate", "left_epoch",
               "largest_rate", "iterations_first", "iterations_largest", "iterations_last"),
    datasets=_binary_images.full_sets,
)  # fmt: skip
