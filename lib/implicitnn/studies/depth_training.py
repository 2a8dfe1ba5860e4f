r"""Study of the experiments: gradient descent on two classes of images (claims C5 and C8).

Classes 0 and 1, N/2 random samples each, W with N(0, 1/m), A = I, b = 0, eta = 1/N. ``labels`` are
``signs`` (-1 and 1) or ``zero-one``. ``model`` is ``infinite`` or ``depth 1``: the network with one
hidden layer and the same start.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._infinite_depth import finite
from implicitnn._validate import FloatArray, integer, real
from implicitnn.infinite_depth import Descent, Params
from implicitnn.studies import _binary_images
from implicitnn.studies._binary_images import Labelled
from implicitnn.sweeps import Study

MODELS = ("infinite", "depth 1")
TOL = 1e-6
COLD_TOL = 1e-8
POINTS = 50
SETS = ("mnist", "fashion_mnist", "cifar10")
# Where the step is at the edge of stability, trajectories magnify rounding.
SENSITIVE = (
    "rises", "loss_last", "loss_ratio", "sigma_ratio", "norm_A_largest", "rate_largest", "moved_A",
    "train_error", "test_error", "cold_last", "curve_epoch", "curve_loss", "curve_sigma",
    "curve_norm_A", "curve_iterations",
)  # fmt: skip
NOTHING_NEEDED = {"needed_beta": 0.0, "needed_gamma": 0.0, "needed_eta": 0.0}


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return what one run of training showed.

    ``rises`` counts the epochs in which the loss grew. ``sigma_ratio`` is the smallest recorded
    sigma_min(Z) over the first; ``cold_first`` and ``cold_last`` are the forward iterations from
    zero, of the network's own map and to a relative error of 1e-8, at the first and the last
    parameters. ``curve_`` columns hold about 50 recorded epochs; ``curve_iterations`` are of the
    warm iteration with a multiple of the identity split off. ``needed_beta``, ``needed_gamma``,
    ``needed_eta``: smallest scale that the conditions allow, gamma and the largest step there (0
    when there is none), for the infinite model.
    """
    N, m, epochs = (integer(settings[key], key, 1) for key in ("N", "m", "epochs"))
    gamma, model = real(settings["gamma"], "gamma"), str(settings["model"])
    labels = str(settings["labels"])
    train, test = _binary_images.draw(
        str(settings["dataset"]), N, seed, source=str(settings["source"]), labels=labels
    )
    rng = np.random.default_rng([seed, m])
    start = deep.identity(train.X.shape[1], m, gamma, rng)
    depth = None if model == "infinite" else integer(int(model.split()[1]), "depth", 1)
    run = deep.descend(
        start, train.X, train.y, 1 / N, epochs, tol=TOL, depth=depth,
        record_every=max(1, epochs // POINTS),
    )  # fmt: skip
    return (
        numbers(run)
        | errors(run.params, depth, train, test, labels)
        | (solves(start, run, train.X) if depth is None else {"cold_first": 0, "cold_last": 0})
        | (needed(start, train) if depth is None else NOTHING_NEEDED)
    )


def numbers(run: Descent) -> dict[str, object]:
    """Return what the trace holds, as single numbers and as curves."""
    trace, losses = run.trace, run.losses
    return {
        "status": run.status.name,
        "rises": int((np.diff(losses) > 1e-12 * losses[0]).sum()),
        "loss_first": float(losses[0]),
        "loss_last": float(losses[-1]),
        "loss_ratio": float(losses[-1] / losses[0]),
        "sigma_ratio": ratio(trace.sigma_min),
        "norm_A_largest": float(trace.norm_A.max()),
        "rate_largest": float(trace.rate.max()),
        "moved_A": float(trace.moved_A[-1]),
        "curve_epoch": trace.epoch,
        "curve_loss": trace.loss,
        "curve_sigma": trace.sigma_min,
        "curve_norm_A": trace.norm_A,
        "curve_iterations": trace.forward_iterations,
    }


def ratio(values: FloatArray) -> float:
    """Return the smallest over the first, 0 where the first is 0."""
    return float(values.min() / values[0]) if values[0] > 0 else 0.0


def errors(
    params: Params, depth: int | None, train: Labelled, test: Labelled, labels: str
) -> dict[str, float]:
    """Return the shares of wrong predictions on the training and the test samples."""

    def predict(X: FloatArray) -> FloatArray:
        if depth is not None:
            return np.asarray(finite.layers(params, X, depth)[-1] @ params.b)
        return np.asarray(deep.forward(params, X, tol=COLD_TOL).Z @ params.b)

    return {
        name: _binary_images.error(predict(sample.X), sample, labels)
        for name, sample in (("train_error", train), ("test_error", test))
    }


def solves(start: Params, run: Descent, X: FloatArray) -> dict[str, int]:
    """Return the forward iterations from zero at the first and at the last parameters."""
    return {
        "cold_first": deep.forward(start, X, tol=COLD_TOL).iterations,
        "cold_last": deep.forward(run.params, X, tol=COLD_TOL).iterations,
    }


def needed(start: Params, train: Labelled) -> dict[str, float]:
    """Return the smallest admissible scale, gamma and the largest step there; zeros if none."""
    found = deep.smallest_beta(start, train.X, train.y, largest=1e18)
    if found.beta is None:
        return NOTHING_NEEDED
    return {
        "needed_beta": found.beta,
        "needed_gamma": start.gamma / found.beta,
        "needed_eta": found.conditions.eta_max,
    }


def cells(
    sets: tuple[str, ...],
    source: str,
    N: int,
    m: int,
    epochs: int,
    models: tuple[str, ...] = MODELS,
    labels: str = "signs",
) -> list[dict[str, object]]:
    """Return the cells of every set and model."""
    size = {"source": source, "N": N, "epochs": epochs, "gamma": 0.1, "labels": labels}
    return [size | {"dataset": name, "m": m, "model": model} for name in sets for model in models]


def cost(settings: Mapping[str, object]) -> float:
    """Return the relative cost of a cell: products of N x m x m, and of N x 784 x m."""
    N, m, epochs = (real(settings[key], key) for key in ("N", "m", "epochs"))
    products = {"infinite": 13.0, "depth 1": 1.0}[str(settings["model"])]
    return epochs * N * m * (products * m + 3 * 784)


STUDY = Study(
    name="depth_training",
    row=row,
    grids={
        "quick": cells(("mnist", "fashion_mnist"), "embedded", 80, 160, 100),
        "paper": cells(SETS, "full", 1000, 2000, 500),
    },
    seeds={"quick": (0,), "paper": (0, 1, 2)},
    claims=("C5", "C8"),
    rtol=1e-4,
    atol=1e-9,
    unchecked=SENSITIVE,
    datasets=_binary_images.full_sets,
    cost=cost,
)
