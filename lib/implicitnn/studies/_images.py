"""Two-class image samples and samples of their Gaussian twins, prepared the same way."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from implicitnn import _validate, datasets, mixtures
from implicitnn._validate import FloatArray
from implicitnn.mixtures import GaussianMixture, Sample

CLASSES = (6, 8)
SIDE = 28
KINDS = ("real", "twin")
TIERS = {"embedded": "quick", "full": "paper"}


@lru_cache(maxsize=8)
def pool(name: str, source: str, side: int = SIDE) -> tuple[FloatArray, np.ndarray]:
    """Return the training images of the two classes, (N, side^2), normalised, and their labels.

    The larger class is cut to the size of the smaller. ``source`` is ``"embedded"`` (the sample
    that comes with the book) or ``"full"``. Smaller sides are averages over square blocks.
    """
    _validate.one_of(source, "source", tuple(TIERS))
    data = datasets.load(name, "train", classes=CLASSES, tier=TIERS[source])
    members = [np.flatnonzero(data.y == label) for label in CLASSES]
    rows = np.concatenate([m[: min(map(len, members))] for m in members])
    X = normalised(block_means(data.X[rows].astype(np.float64), side))
    X.setflags(write=False)  # kept between calls
    return X, data.y[rows]


@lru_cache(maxsize=8)
def twin(name: str, source: str, side: int = SIDE) -> GaussianMixture:
    """Return the mixture with the pool's class means and covariances."""
    return mixtures.gaussian_twin(*pool(name, source, side))


def block_means(images: FloatArray, side: int) -> FloatArray:
    """Return square images, one a row, averaged over blocks down to ``side`` x ``side``."""
    full = int(np.sqrt(images.shape[1]))
    if side < 1 or full % side:
        raise ValueError(f"side must divide {full}, got {side}")
    shape = (len(images), side, full // side, side, full // side)
    return np.asarray(images.reshape(shape).mean(axis=(2, 4)).reshape(len(images), side * side))


def normalised(X: FloatArray) -> FloatArray:
    """Return rows with their joint mean removed and mean squared norm one."""
    centred = X - X.mean(axis=0)
    return np.asarray(centred / np.sqrt((centred**2).sum(axis=1).mean()))


def draw(name: str, kind: str, n: int, seed: int, *, source: str, side: int = SIDE) -> Sample:
    """Return n images of the two classes in equal number (or n samples of the twin).

    Images are drawn without replacement from the pool. Mean and scale are those of the n samples,
    and so are the class statistics: what a user with n samples would do.
    """
    _validate.one_of(kind, "kind", KINDS)
    rng = np.random.default_rng([seed, n, side])
    if kind == "twin":
        drawn = twin(name, source, side).sample(n, rng)
        return mixtures.empirical(normalised(drawn.X), drawn.labels)
    X, y = pool(name, source, side)
    sizes = [n - n // 2, n // 2]
    rows = np.concatenate(
        [_choose(np.flatnonzero(y == c), m, rng) for c, m in zip(CLASSES, sizes, strict=True)]
    )
    return mixtures.empirical(normalised(X[rows]), y[rows])


def _choose(candidates: np.ndarray, size: int, rng: np.random.Generator) -> np.ndarray:
    if size > len(candidates):
        raise ValueError(f"a class has {len(candidates)} images, {size} were asked for")
    return np.asarray(rng.choice(candidates, size, replace=False))
