"""What the studies of accuracy share: images prepared for classification, and the six networks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn import activations, datasets, design
from implicitnn._validate import FloatArray, one_of
from implicitnn.specs import DEQ, ENN
from implicitnn.studies._images import TIERS

IMAGES = ("mnist", "fashion_mnist")
SIGMA_A2 = 0.2
MODELS = ("relu_deq", "l_relu", "relu", "tanh_deq", "h_tanh", "tanh")
# Each explicit net and the DEQ it is compared with.
PARTNERS = {"l_relu": "relu_deq", "relu": "relu_deq", "h_tanh": "tanh_deq", "tanh": "tanh_deq"}


@dataclass(frozen=True, eq=False)
class Task:
    """Training and test images, prepared by the statistics of the training images alone.

    X, X_test : (n, p), training mean removed, mean squared norm of the training images one.
    y, y_test : labels 0..9.
    """

    X: FloatArray
    y: NDArray[np.int64]
    X_test: FloatArray
    y_test: NDArray[np.int64]

    @property
    def tau0(self) -> float:
        """Root mean square norm of the training images."""
        return float(np.sqrt((self.X**2).sum(axis=1).mean()))


@lru_cache(maxsize=2)
def task(data: str, source: str, n: int, n_test: int) -> Task:
    """Return n training and n_test test images, the same number of each of the ten classes.

    Examples
    --------
    >>> t = task("mnist", "embedded", 100, 50)
    >>> t.X.shape, t.X_test.shape, round(t.tau0, 12)
    ((100, 784), (50, 784), 1.0)
    """
    tier = TIERS[one_of(source, "source", tuple(TIERS))]
    parts = {"train": n, "test": n_test}
    loaded = {split: datasets.load(data, split, n=k, tier=tier) for split, k in parts.items()}
    X, X_test = (loaded[split].X.astype(np.float64) for split in parts)
    mean = X.mean(axis=0)
    X -= mean
    X_test -= mean
    scale = np.sqrt((X**2).sum(axis=1).mean())
    return Task(X / scale, loaded["train"].y, X_test / scale, loaded["test"].y)


def network(model: str, tau0: float) -> DEQ | ENN:
    """Return one of the six networks for data of scale tau0, all with sigma_a2 = 0.2.

    ``relu`` and ``tanh`` are plain centred nets as deep as the matched ones: two layers and one.

    Examples
    --------
    >>> network("tanh", 1.0), len(network("l_relu", 1.0).layers)
    (ENN((tanh,), tau0=1.0), 2)
    """
    one_of(model, "model", MODELS)
    if model in ("relu", "tanh"):
        layers = (activations.relu,) * 2 if model == "relu" else (activations.tanh,)
        return ENN(layers, tau0)
    name = PARTNERS.get(model, model).removesuffix("_deq")
    deq = DEQ(activations.get(name), SIGMA_A2).at(tau0)
    if model == "l_relu":
        return design.match(deq, "leaky_relu", layers=2).enn
    return design.match(deq, "hard_tanh").enn if model == "h_tanh" else deq


def cells(
    source: str, widths: tuple[int, ...], n: int, n_test: int, epochs: int
) -> list[dict[str, object]]:
    """Return one cell for each data set, network and width."""
    return [
        {"data": data, "source": source, "model": model, "width": width,
         "n": n, "n_test": n_test, "epochs": epochs}
        for data in IMAGES
        for model in MODELS
        for width in widths
    ]  # fmt: skip
