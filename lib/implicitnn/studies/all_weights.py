r"""Study of training all weights against training the readout alone (claim A14).

One row is one network trained twice from the same weights by the same recipe: all weights, with the
readout from N(0, 1), and the readout alone; beside them stands the exact readout of the untrained
features, since gradient descent is far from done in these few steps. How far training leaves the
linearised regime is measured by the drift of the conjugate kernel, :math:`\|G_t - G_0\|_F /
\|G_0\|_F` on test images, and by that of the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import networks, readout
from implicitnn._validate import FloatArray, integer, real
from implicitnn.readout import Recipe
from implicitnn.studies._classify import MODELS, cells, network, task
from implicitnn.studies._needs import full_images
from implicitnn.sweeps import Study

PROBE, BATCH = 500, 32
PENALTIES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
WIDTHS = (32, 128, 512, 1024)


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return test and training accuracies in percent, drifts, and counts of failed solves.

    ``all``, ``readout``, ``exact``: test accuracy of the three; ``gain``: all minus readout, and
    ``gain_over_exact``: all minus exact. ``kernel_drift``, ``weight_drift``: relative Frobenius
    norms, the second of the hidden weights. ``iterations_first``, ``iterations_last``: mean
    number of iterations of a forward solve in the first and last epoch (DEQ only).

    Parameters
    ----------
    settings : mapping
        ``data``, ``source``, ``model``, ``width``, ``n``, ``n_test``, ``epochs``.
    seed : int
        Seed of weights and order.

    Examples
    --------
    >>> cell = {"data": "mnist", "source": "embedded", "model": "tanh", "width": 32}
    >>> found = row(cell | {"n": 400, "n_test": 500, "epochs": 5}, 0)
    >>> found["finite"], found["not_converged"], 0 < found["kernel_drift"] < 2
    (True, 0, True)
    """
    images = task(
        str(settings["data"]),
        str(settings["source"]),
        integer(settings["n"], "n"),
        integer(settings["n_test"], "n_test"),
    )
    model, width = str(settings["model"]), integer(settings["width"], "width", 1)
    recipe = Recipe(batch=BATCH, epochs=integer(settings["epochs"], "epochs", 1))
    spec, p = network(model, images.tau0), images.X.shape[1]
    result: dict[str, object] = {}
    for mode in ("all", "readout"):
        rng = np.random.default_rng([seed, width, MODELS.index(model)])
        net = networks.build(spec, p, width, 10, rng)
        if mode == "readout":
            for name, weights in net.named_parameters():
                weights.requires_grad_(name == "a")
        before = [w.detach().clone() for w in net.parameters()]
        start = _kernel(net, images.X_test[:PROBE])
        if mode == "readout":
            F, F_test = (networks.features(net, X).value for X in (images.X, images.X_test))
            chosen = readout.select(
                F, images.y, np.random.default_rng([seed, 101]), penalties=PENALTIES, gap=1e-5
            )
            result["exact"] = 100.0 * chosen.readout.accuracy(F_test, images.y_test)
        order = np.random.default_rng([seed, width, 100])
        history = networks.train(net, images.X, images.y, order, recipe)
        result[mode] = _accuracy(net, images.X_test, images.y_test)
        result[f"{mode}_train"] = _accuracy(net, images.X, images.y)
        if mode == "all":
            drift = np.linalg.norm(_kernel(net, images.X_test[:PROBE]) - start)
            hidden = [(w - b, b) for w, b in zip(net.parameters(), before, strict=True)][:-1]
            moved = sum(float(d.detach().double().square().sum()) for d, _ in hidden)
            size = sum(float(b.double().square().sum()) for _, b in hidden)
            result |= {
                "finite": history.finite,
                "kernel_drift": float(drift / np.linalg.norm(start)),
                "weight_drift": (moved / size) ** 0.5,
                "not_converged": history.not_converged,
            }
            if history.iterations:
                result["iterations_first"] = history.iterations[0]
                result["iterations_last"] = history.iterations[-1]
    scores = {name: real(result[name], name) for name in ("all", "readout", "exact")}
    gains = {
        "gain": scores["all"] - scores["readout"],
        "gain_over_exact": scores["all"] - scores["exact"],
    }
    return result | gains


def _kernel(net: networks.ImplicitNet | networks.ExplicitNet, X: FloatArray) -> FloatArray:
    F = networks.features(net, X).value.astype(np.float64)
    return np.asarray(F @ F.T)


def _accuracy(
    net: networks.ImplicitNet | networks.ExplicitNet, X: FloatArray, y: np.ndarray
) -> float:
    F = networks.features(net, X).value
    logits = F @ net.a.detach().numpy().T
    return 100.0 * float((logits.argmax(axis=1) == y).mean())


def _cost(settings: Mapping[str, object]) -> float:
    n, m, epochs = (real(settings[key], key) for key in ("n", "width", "epochs"))
    layers = 30.0 if str(settings["model"]).endswith("deq") else 4.0
    return 3e9 + n * epochs * (2.0 * m * m * layers + 784.0 * 6.0 * m + 1e5)


STUDY = Study(
    name="all_weights",
    row=row,
    grids={
        "quick": cells("embedded", (32, 128), 500, 500, 3),
        "paper": cells("full", WIDTHS, 10_000, 8_000, 30),
    },
    seeds={"quick": (1000,), "paper": (0, 1, 2)},
    claims=("A14",),
    datasets=full_images,
    # Training in float32: the order of a sum decides near a boundary, and is amplified.
    rtol=0.05,
    atol=1.0,
    cost=_cost,
)
