"""Classes 0 and 1 of the image sets: grey, 28 x 28, rows of norm one, as in the experiments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from implicitnn import _validate, datasets
from implicitnn._validate import FloatArray

CLASSES = (0, 1)
SIDE = 28
# Rec. 601 weights of red, green and blue.
GREY = (0.299, 0.587, 0.114)
LABELS = ("signs", "zero-one")
TIERS = {"embedded": "quick", "full": "paper"}


class Labelled(NamedTuple):
    """Rows X (N, 784) of norm one, labels y (N,) as trained on, and the classes (N,)."""

    X: FloatArray
    y: FloatArray
    classes: np.ndarray


def draw(
    name: str, N: int, seed: int, *, source: str, labels: str = "signs"
) -> tuple[Labelled, Labelled]:
    """Return N random training images, half of each class, and all test images of both classes.

    Labels are -1 and 1 (``"signs"``) or 0 and 1 (``"zero-one"``).
    """
    _validate.one_of(labels, "labels", LABELS)
    X, classes = pool(name, "train", source)
    rng = np.random.default_rng([seed, N])
    rows = []
    for label, count in zip(CLASSES, (N - N // 2, N // 2), strict=True):
        members = np.flatnonzero(classes == label)
        if count > members.size:
            raise ValueError(f"class {label} has {members.size} images, {count} were asked for")
        rows.append(rng.choice(members, count, replace=False))
    kept = np.concatenate(rows)
    test_X, test_classes = pool(name, "test", source)
    return (
        Labelled(X[kept], targets(classes[kept], labels), classes[kept]),
        Labelled(test_X, targets(test_classes, labels), test_classes),
    )


def targets(classes: np.ndarray, labels: str) -> FloatArray:
    """Return the classes 0 and 1 as numbers to be learned."""
    values = classes.astype(np.float64)
    return np.asarray(2 * values - 1 if labels == "signs" else values)


def error(prediction: FloatArray, sample: Labelled, labels: str) -> float:
    """Return the share of samples on the wrong side of the midpoint of the two labels."""
    middle = 0.0 if labels == "signs" else 0.5
    return float(np.mean((prediction > middle) != (sample.classes == 1)))


@lru_cache(maxsize=8)
def pool(name: str, split: str, source: str) -> tuple[FloatArray, np.ndarray]:
    """Return all images of the two classes, (n, 784), and their classes."""
    _validate.one_of(source, "source", tuple(TIERS))
    data = datasets.load(name, split, classes=CLASSES, tier=TIERS[source])
    X = prepared(data.images)
    X.setflags(write=False)  # kept between calls
    return X, data.y


def prepared(images: np.ndarray) -> FloatArray:
    """Return images (n, h, w) or (n, h, w, 3) as grey rows (n, 784) of norm one.

    Other sizes than 28 x 28 are resized by linear interpolation between pixel centres. A black
    image stays zero.
    """
    grey = images.astype(np.float64)
    if grey.ndim == 4:
        grey = grey @ np.array(GREY)
    down, across = (interpolation(size) for size in grey.shape[1:])
    rows = (down @ grey @ across.T).reshape(len(grey), SIDE * SIDE)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1.0))


def interpolation(size: int) -> FloatArray:
    """Return the matrix (28, size) that resizes a line of ``size`` pixels; rows sum to one.

    Examples
    --------
    >>> bool((interpolation(28) == np.eye(28)).all())
    True
    >>> interpolation(56)[0, :3].tolist()
    [0.5, 0.5, 0.0]
    """
    places = np.clip((np.arange(SIDE) + 0.5) * size / SIDE - 0.5, 0, size - 1)
    left = np.minimum(places.astype(int), size - 1)
    right = np.minimum(left + 1, size - 1)
    matrix = np.zeros((SIDE, size))
    matrix[np.arange(SIDE), left] += 1 - (places - left)
    matrix[np.arange(SIDE), right] += places - left
    return matrix


def full_sets(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return the image set that a cell reads at its full size, if any."""
    return (str(settings["dataset"]),) if settings.get("source") == "full" else ()
