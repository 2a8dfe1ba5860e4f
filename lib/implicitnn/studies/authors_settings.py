r"""Study of settings that differ within one comparison, as in the authors' scripts (claim A9).

One row is one network at one width, prepared as in one variant:

- ``consistent``: as in the study `accuracy`;
- ``splits``: training and test images each by their own mean and scale;
- ``variances``: the DEQ has sigma_a2 = 0.2, its centring constant is that of 0.1, L-ReLU is matched
  to the DEQ of 0.3 and H-Tanh to that of 0.1, and the plain tanh net sees its input times
  :math:`\sqrt{0.2}`;
- ``inside``: the plain ReLU net subtracts its constants before the activation, where they are
  thresholds; they are :math:`\sigma_a\tau_0/\sqrt{2\pi}` and :math:`\tau_1/\sqrt{2\pi}`, with
  :math:`\tau_1` that of the first layer of L-ReLU, and its input is multiplied by
  :math:`\sqrt{0.8}`;
- ``scripts``: all of these at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from implicitnn import activations, design, readout
from implicitnn._validate import integer, one_of, real
from implicitnn.activations import Activation
from implicitnn.readout import Recipe
from implicitnn.specs import DEQ, ENN
from implicitnn.studies import _classify, accuracy
from implicitnn.studies._classify import IMAGES, MODELS, SIGMA_A2, Task, needed
from implicitnn.sweeps import Study

# Networks that a variant changes; the others would repeat the consistent rows.
VARIANTS: dict[str, tuple[str, ...]] = {
    "consistent": MODELS,
    "splits": MODELS,
    "variances": ("relu_deq", "l_relu", "h_tanh", "tanh"),
    "inside": ("relu",),
    "scripts": MODELS,
}
CENTRED_FOR, L_RELU_FOR, H_TANH_FOR = 0.1, 0.3, 0.1
WIDTH = 512
Net = DEQ | ENN


def shifted(offset: float, threshold: float = 0.0) -> Activation:
    """Return max(t - threshold, 0) - offset.

    Examples
    --------
    >>> shifted(0.5, 1.0)(np.array([0.0, 3.0])).tolist()
    [-0.5, 1.5]
    """
    return Activation(
        "shifted relu",
        lambda t: np.maximum(t - threshold, 0.0) - offset,
        lambda t: np.where(t > threshold, 1.0, 0.0),
        kinks=(threshold,),
    )


def images_of(variant: str, images: Task) -> Task:
    """Return the images as the variant prepares them.

    Examples
    --------
    >>> t = images_of("splits", _classify.task("mnist", "embedded", 100, 50))
    >>> round(float((t.X_test**2).sum(axis=1).mean()), 12)
    1.0
    """
    if variant not in ("splits", "scripts"):
        return images
    centred = images.X_test - images.X_test.mean(axis=0)
    scale = np.sqrt((centred**2).sum(axis=1).mean())
    return Task(images.X, images.y, np.asarray(centred / scale), images.y_test)


def network(variant: str, model: str, tau0: float) -> tuple[Net, float]:
    """Return the network of a variant, and the factor of its input.

    Examples
    --------
    >>> round(network("variances", "tanh", 1.0)[1] ** 2, 12)
    0.2
    >>> network("consistent", "relu", 1.0)
    (ENN((relu, relu,), tau0=1.0), 1.0)
    """
    if model not in VARIANTS[one_of(variant, "variant", tuple(VARIANTS))]:
        raise ValueError(f"variant {variant!r} has {VARIANTS[variant]}, got {model!r}")
    if variant in ("variances", "scripts"):
        if model == "relu_deq":
            constant = DEQ(activations.relu, CENTRED_FOR).at(tau0).offset
            return DEQ(shifted(constant), SIGMA_A2, tau0=tau0, centred=False), 1.0
        if model == "l_relu":
            wanted = DEQ(activations.relu, L_RELU_FOR).at(tau0)
            return design.match(wanted, "leaky_relu", layers=2).enn, 1.0
        if model == "h_tanh":
            wanted = DEQ(activations.tanh, H_TANH_FOR).at(tau0)
            return design.match(wanted, "hard_tanh").enn, 1.0
        if model == "tanh":
            return _classify.network(model, tau0), math.sqrt(SIGMA_A2)
    if variant in ("inside", "scripts") and model == "relu":
        sigma_a2 = L_RELU_FOR if variant == "scripts" else SIGMA_A2
        first = design.match(DEQ(activations.relu, sigma_a2).at(tau0), "leaky_relu", layers=2)
        scales = (math.sqrt(SIGMA_A2) * tau0, first.enn.taus[1])
        layers = [shifted(0.0, scale / math.sqrt(2.0 * math.pi)) for scale in scales]
        return ENN(layers, tau0, centred=False), math.sqrt(1.0 - SIGMA_A2)
    return _classify.network(model, tau0), 1.0


def row(settings: Mapping[str, object], seed: int) -> dict[str, object]:
    """Return test accuracies in percent by gradient descent and by ridge, and failed solves.

    Parameters
    ----------
    settings : mapping
        ``variant``, and those of `accuracy.row`.
    seed : int
        Seed of weights, of the part held out, and of gradient descent.

    Examples
    --------
    >>> cell = {"data": "mnist", "source": "embedded", "model": "tanh", "width": 32, "n": 300}
    >>> found = row(cell | {"n_test": 200, "epochs": 5, "lr": 1.0, "variant": "scripts"}, 0)
    >>> found["ridge"] > 40, found["not_converged"]
    (True, 0)
    """
    variant, model = str(settings["variant"]), str(settings["model"])
    sizes = [integer(settings[key], key) for key in ("n", "n_test")]
    task = _classify.task(str(settings["data"]), str(settings["source"]), *sizes)
    images, width = images_of(variant, task), integer(settings["width"], "width", 1)
    spec, factor = network(variant, model, images.tau0)
    seen = replace(images, X=factor * images.X, X_test=factor * images.X_test)
    key = [seed, width, MODELS.index(model)]
    drawn = _classify.features(spec, seen, width, key)
    recipe = Recipe(real(settings["lr"], "lr"), integer(settings["epochs"], "epochs", 1))
    sgd = readout.sgd(drawn.train, images.y, np.random.default_rng([seed, width, 100]), recipe)
    split = readout.Split(drawn.train, images.y, np.random.default_rng([seed, 101]))
    ridge = split.select("ridge", patience=accuracy.PATIENCE).readout
    return {
        "sgd": 100.0 * sgd.accuracy(drawn.test, images.y_test),
        "ridge": 100.0 * ridge.accuracy(drawn.test, images.y_test),
        "mean_square": float((drawn.train.astype(np.float64) ** 2).sum() / len(drawn.train)),
        "not_converged": drawn.not_converged,
    }


def _cells(
    source: str, width: int, epochs: int, sizes: tuple[int, int] | None = None
) -> list[dict[str, object]]:
    return [
        cell | {"variant": variant}
        for variant, models in VARIANTS.items()
        for cell in _classify.cells(
            source, (width,), epochs, data=IMAGES, models=models, sizes=sizes
        )
    ]


STUDY = Study(
    name="authors_settings",
    row=row,
    grids={
        "quick": _cells("embedded", 128, 10, (600, 500)),
        "paper": _cells("full", WIDTH, 100),
    },
    seeds={"quick": (1000,), "paper": tuple(range(5))},
    claims=("A9",),
    datasets=needed,
    rtol=0.0,
    atol=0.1,
    unchecked=("mean_square",),
    cost=accuracy.cost,
)
