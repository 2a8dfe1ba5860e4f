"""What the studies of accuracy share: images prepared for classification, and the six networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from implicitnn import activations, datasets, design, networks
from implicitnn._validate import FloatArray, one_of
from implicitnn.specs import DEQ, ENN
from implicitnn.studies._images import TIERS
from implicitnn.studies._needs import full_images

IMAGES = ("mnist", "fashion_mnist")
FEATURES = "cifar10 features"
DATA = (*IMAGES, FEATURES)
# Training and test images of tier paper, the same number of each class. Half of the official
# training files of CIFAR-10 is used, so that tier paper runs on a partial copy of the set.
SIZES = {"mnist": (50_000, 8_000), "fashion_mnist": (50_000, 8_000), FEATURES: (24_000, 8_000)}
# Learning rates of the paper's recipe.
RATES = {"mnist": 1.0, "fashion_mnist": 1.0, FEATURES: 0.1}
SIGMA_A2 = 0.2
# The map contracts by less than a half, so the features are nearer to the equilibrium than this.
RTOL = 1e-3
MODELS = ("relu_deq", "l_relu", "relu", "tanh_deq", "h_tanh", "tanh")
# The same class of networks as "relu" with weights of its own: what a seed alone does.
AGAIN = "relu_again"
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
    loaded = {split: _load(data, split, k, tier) for split, k in parts.items()}
    (X, y), (X_test, y_test) = (loaded[split] for split in parts)
    mean = X.mean(axis=0)
    X -= mean
    X_test -= mean
    scale = np.sqrt((X**2).sum(axis=1).mean())
    found = Task(X / scale, y, X_test / scale, y_test)
    for array in (found.X, found.y, found.X_test, found.y_test):
        array.setflags(write=False)  # kept between calls
    return found


def _load(data: str, split: str, n: int, tier: str) -> tuple[FloatArray, NDArray[np.int64]]:
    if one_of(data, "data", DATA) == FEATURES:
        from implicitnn import backbones

        features = backbones.cifar10_features(split, n, tier)
        return features.X.astype(np.float64), features.y
    images = datasets.load(data, split, n=n, tier=tier)
    return images.X.astype(np.float64), images.y


def needed(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the image sets that a cell reads at their full size.

    Examples
    --------
    >>> needed({"data": "cifar10 features", "source": "full"})
    ('cifar10',)
    >>> needed({"data": "mnist", "source": "embedded"})
    ()
    """
    if settings["data"] == FEATURES:
        return ("cifar10",) if settings["source"] == "full" else ()
    return full_images(settings)


def network(model: str, tau0: float) -> DEQ | ENN:
    """Return one of the six networks for data of scale tau0, all with sigma_a2 = 0.2.

    ``relu`` and ``tanh`` are plain centred nets as deep as the matched ones: two layers and one.

    Examples
    --------
    >>> network("tanh", 1.0), len(network("l_relu", 1.0).layers)
    (ENN((tanh,), tau0=1.0), 2)
    """
    one_of(model, "model", (*MODELS, AGAIN))
    model = "relu" if model == AGAIN else model
    if model in ("relu", "tanh"):
        layers = (activations.relu,) * 2 if model == "relu" else (activations.tanh,)
        return ENN(layers, tau0)
    name = PARTNERS.get(model, model).removesuffix("_deq")
    deq = DEQ(activations.get(name), SIGMA_A2).at(tau0)
    if model == "l_relu":
        return design.match(deq, "leaky_relu", layers=2).enn
    return design.match(deq, "hard_tanh").enn if model == "h_tanh" else deq


@dataclass(frozen=True, eq=False)
class Drawn:
    """Features of the training and the test images by one random network, and failed solves."""

    train: NDArray[np.floating]
    test: NDArray[np.floating]
    not_converged: int


def drawn(model: str, images: Task, width: int, seed: int) -> Drawn:
    """Return the features of a network whose weights depend on model, width and seed.

    Examples
    --------
    >>> a, b = (drawn(m, task("mnist", "embedded", 20, 10), 8, 0) for m in ("relu", AGAIN))
    >>> a.train.shape, bool((a.train == b.train).all())
    ((20, 8), False)
    """
    place = (*MODELS, AGAIN).index(one_of(model, "model", (*MODELS, AGAIN)))
    return features(network(model, images.tau0), images, width, [seed, width, place])


def features(spec: DEQ | ENN, images: Task, width: int, key: Sequence[int]) -> Drawn:
    """Return the features of one random network, its weights drawn by the key.

    The arithmetic is numpy's on every machine: which library is faster would decide last digits.

    Examples
    --------
    >>> images = task("mnist", "embedded", 20, 10)
    >>> found = features(network("tanh", 1.0), images, 8, [0, 8])
    >>> found.train.shape, found.test.shape, found.not_converged
    ((20, 8), (10, 8), 0)
    """
    rng = np.random.default_rng(key)
    net = networks.build(spec, images.X.shape[1], width, 1, rng, rtol=RTOL, backend="numpy")
    train, test = (networks.features(net, X) for X in (images.X, images.X_test))
    return Drawn(train.value, test.value, train.not_converged + test.not_converged)


def cells(
    source: str,
    widths: Sequence[int],
    epochs: int,
    *,
    data: Sequence[str] = DATA,
    models: Sequence[str] = MODELS,
    sizes: tuple[int, int] | None = None,
) -> list[dict[str, object]]:
    """Return one cell for each data set, network and width; sizes None are those of tier paper."""
    return [
        {"data": name, "source": source, "model": model, "width": width, "n": n, "n_test": n_test,
         "epochs": epochs, "lr": RATES[name]}
        for name in data
        for n, n_test in (sizes or SIZES[name],)
        for model in models
        for width in widths
    ]  # fmt: skip
