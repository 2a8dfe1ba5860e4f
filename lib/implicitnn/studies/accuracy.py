"""Study of accuracy against width, six networks and three readouts (claim A9).

One row is one random network whose readout alone is trained: by the paper's recipe of gradient
descent, by exact penalised softmax regression (widths up to 2048), and by ridge regression. Rows of
one seed share the images and the part held out; the weights of each network are its own. All
networks have sigma_a2 = 0.2 and are prepared by training statistics only. At some widths the plain
ReLU net is drawn a second time, with other weights: two classes that are the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import readout
from implicitnn._validate import integer, real
from implicitnn.readout import Recipe
from implicitnn.studies._classify import AGAIN, cells, drawn, needed, task
from implicitnn.sweeps import Study

SOFTMAX_WIDTH = 2048
PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
# Penalties in a row no better than the best before the walk along the grid ends.
PATIENCE = 1
# Certified gaps of the fit that is kept, and of those that only rank penalties.
GAP, PATH_GAP = 1e-6, 1e-4
WIDTHS = (32, 64, 128, 256, 512, 1024, 2048)
TWIN_WIDTHS = (128, 512, 2048)


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return accuracies in percent, test and training, of one network under each readout.

    ``sgd``, ``softmax``, ``ridge`` and the same with ``_train``; penalties chosen, whether one lies
    at the edge of its grid, the certified gap, and the samples that did not converge.

    Parameters
    ----------
    settings : mapping
        ``data``, ``source`` ("embedded" or "full"), ``model``, ``width``, ``n``, ``n_test``,
        ``epochs`` and ``lr`` of gradient descent.
    seed : int
        Seed of the weights, of the part held out, and of gradient descent.

    Examples
    --------
    >>> cell = {"data": "mnist", "source": "embedded", "model": "h_tanh", "width": 32}
    >>> found = row(cell | {"n": 300, "n_test": 200, "epochs": 5, "lr": 1.0}, 0)
    >>> found["ridge"] > 40, found["ridge_at_edge"], found["not_converged"]
    (True, False, 0)
    """
    images = task(
        str(settings["data"]),
        str(settings["source"]),
        integer(settings["n"], "n"),
        integer(settings["n_test"], "n_test"),
    )
    width = integer(settings["width"], "width", 1)
    features = drawn(str(settings["model"]), images, width, seed)
    result: dict[str, object] = {"not_converged": features.not_converged}

    def keep(name: str, found: readout.Readout) -> None:
        result[name] = 100.0 * found.accuracy(features.test, images.y_test)
        result[f"{name}_train"] = 100.0 * found.accuracy(features.train, images.y)

    recipe = Recipe(real(settings["lr"], "lr"), integer(settings["epochs"], "epochs", 1))
    order = np.random.default_rng([seed, width, 100])
    keep("sgd", readout.sgd(features.train, images.y, order, recipe))
    split = readout.Split(features.train, images.y, np.random.default_rng([seed, 101]))
    for method in ("ridge", "softmax") if width <= SOFTMAX_WIDTH else ("ridge",):
        penalties = PENALTIES if method == "softmax" else readout.PENALTIES
        chosen = split.select(
            method, penalties=penalties, gap=GAP, path_gap=PATH_GAP, patience=PATIENCE
        )
        keep(method, chosen.readout)
        result |= {
            f"{method}_penalty": chosen.readout.penalty,
            f"{method}_at_edge": chosen.at_edge,
            f"{method}_gap": chosen.readout.gap,
        }
    return result


def cost(settings: Mapping[str, object]) -> float:
    """Operations of features and readouts, roughly, in those of a matrix product."""
    n, m, epochs = (real(settings[key], key) for key in ("n", "width", "epochs"))
    steps = 7.0 if str(settings["model"]).endswith("deq") else 1.0
    passes = 200.0 if m <= SOFTMAX_WIDTH else 0.0
    return 3e10 + n * m * (2.0 * m * steps + 1600.0 + 2.0 * m + 200.0 * (epochs + passes))


STUDY = Study(
    name="accuracy",
    row=row,
    grids={
        "quick": cells("embedded", (32, 128), 10, sizes=(600, 500)),
        "paper": cells("full", WIDTHS, 100) + cells("full", TWIN_WIDTHS, 100, models=(AGAIN,)),
    },
    seeds={"quick": (1000,), "paper": tuple(range(5))},
    claims=("A9",),
    datasets=needed,
    # An order of summation may move a sample across the boundary between two classes.
    rtol=0.0,
    atol=0.1,
    unchecked=("softmax_gap", "ridge_gap"),
    cost=cost,
)
