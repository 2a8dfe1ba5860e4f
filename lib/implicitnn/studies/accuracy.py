"""Study of accuracy against width, six networks and three readouts (claim A9).

One row is one random network whose readout alone is trained: by the paper's recipe of gradient
descent, by exact penalised softmax regression (widths up to 1024), and by ridge regression. Rows of
one seed share the images and the part held out; the weights of each network are its own. All
networks have sigma_a2 = 0.2 and are prepared by training statistics only.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import networks, readout
from implicitnn._validate import integer, real
from implicitnn.readout import Recipe
from implicitnn.studies._classify import MODELS, cells, network, task
from implicitnn.studies._needs import full_images
from implicitnn.sweeps import Study

SOFTMAX_WIDTH = 1024
PENALTIES = (1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
GAP = 1e-6
WIDTHS = (32, 64, 128, 256, 512, 1024, 2048)


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return accuracies in percent, test and training, of one network under each readout.

    ``sgd``, ``softmax``, ``ridge`` and the same with ``_train``; penalties chosen, whether one lies
    at the edge of its grid, the largest certified gap, and the samples that did not converge.

    Parameters
    ----------
    settings : mapping
        ``data``, ``source`` ("embedded" or "full"), ``model``, ``width``, ``n``, ``n_test``,
        ``epochs`` of gradient descent.
    seed : int
        Seed of the weights, of the part held out, and of gradient descent.

    Examples
    --------
    >>> cell = {"data": "mnist", "source": "embedded", "model": "h_tanh", "width": 32}
    >>> found = row(cell | {"n": 300, "n_test": 200, "epochs": 5}, 0)
    >>> found["ridge"] > 40, found["ridge_at_edge"], found["not_converged"]
    (True, False, 0)
    """
    images = task(
        str(settings["data"]),
        str(settings["source"]),
        integer(settings["n"], "n"),
        integer(settings["n_test"], "n_test"),
    )
    model, width = str(settings["model"]), integer(settings["width"], "width", 1)
    # Paired where the draws can be: the order of the models does not enter the other streams.
    rng = np.random.default_rng([seed, width, MODELS.index(model)])
    net = networks.build(network(model, images.tau0), images.X.shape[1], width, 1, rng)
    train, test = (networks.features(net, X) for X in (images.X, images.X_test))
    F, F_test = train.value, test.value
    result: dict[str, object] = {"not_converged": train.not_converged + test.not_converged}

    def keep(name: str, found: readout.Readout) -> None:
        result[name] = 100.0 * found.accuracy(F_test, images.y_test)
        result[f"{name}_train"] = 100.0 * found.accuracy(F, images.y)

    recipe = Recipe(epochs=integer(settings["epochs"], "epochs", 1))
    keep("sgd", readout.sgd(F, images.y, np.random.default_rng([seed, width, 100]), recipe))
    methods = ("ridge", "softmax") if width <= SOFTMAX_WIDTH else ("ridge",)
    for method in methods:
        chosen = readout.select(
            F,
            images.y,
            np.random.default_rng([seed, 101]),
            method,
            penalties=PENALTIES if method == "softmax" else readout.PENALTIES,
            gap=GAP,
        )
        keep(method, chosen.readout)
        result |= {
            f"{method}_penalty": chosen.readout.penalty,
            f"{method}_at_edge": chosen.at_edge,
            f"{method}_gap": max(*chosen.gaps, chosen.readout.gap),
        }
    return result


def cost(settings: Mapping[str, object]) -> float:
    """Operations of features and readouts, roughly."""
    n, m, epochs = (real(settings[key], key) for key in ("n", "width", "epochs"))
    layers = 12.0 if str(settings["model"]).endswith("deq") else 1.0
    return 3e10 + n * m * (2.0 * m * layers + 784.0 + 60.0 * epochs + 4.0 * m + 40_000.0)


STUDY = Study(
    name="accuracy",
    row=row,
    grids={
        "quick": cells("embedded", (32, 128), 600, 500, 10),
        "paper": cells("full", WIDTHS, 50_000, 8_000, 100),
    },
    seeds={"quick": (1000,), "paper": tuple(range(5))},
    claims=("A9",),
    datasets=full_images,
    # An order of summation may move a sample across the boundary between two classes.
    rtol=0.0,
    atol=0.1,
    unchecked=("softmax_gap", "ridge_gap"),
    cost=cost,
)
