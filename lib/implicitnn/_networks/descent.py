"""Stochastic gradient descent on a readout, in the precision of the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from implicitnn import _validate
from implicitnn._networks import thin as _thin

Floating = NDArray[np.floating]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """Plain stochastic gradient descent on the cross-entropy.

    The defaults are those of Ling et al. on MNIST and Fashion-MNIST (lr 0.1 on CIFAR-10): no
    momentum, no penalty, shuffled batches, the last one dropped where it is not full.

    Examples
    --------
    >>> Recipe(lr=0.1)
    Recipe(lr=0.1, epochs=100, batch=128)
    """

    lr: float = 1.0
    epochs: int = 100
    batch: int = 128

    def __post_init__(self) -> None:
        _validate.positive(self.lr, "lr")
        _validate.integer(self.epochs, "epochs", 1)
        _validate.integer(self.batch, "batch", 1)


def require_recipe(recipe: Recipe | None) -> Recipe:
    """Return a recipe, by default `Recipe()`; anything else is refused."""
    if not isinstance(recipe, Recipe | None):
        raise TypeError(f"recipe must be a Recipe, got {type(recipe).__name__}")
    return Recipe() if recipe is None else recipe


def softmax_sgd(
    F: Floating,
    y: IntArray,
    classes: int,
    rng: np.random.Generator,
    *,
    lr: float,
    epochs: int,
    batch: int,
    start: Floating | None = None,
) -> tuple[Floating, Floating, list[float]]:
    """Weights (m, K), bias (K,), and the mean training loss during each epoch.

    Starts from uniform numbers within 1/sqrt(m), or from given weights and then without a bias.
    Shuffles each epoch, leaves out the last batch where it is not full.
    """
    n, m = F.shape
    F = np.ascontiguousarray(F)
    bound = 1.0 / np.sqrt(m)
    if start is None:
        start = rng.uniform(-bound, bound, (m, classes))
        b = rng.uniform(-bound, bound, classes).astype(F.dtype)
        shift = 1.0
    else:
        b, shift = np.zeros(classes, F.dtype), 0.0
    W = np.array(start.T, dtype=F.dtype, order="C")
    rate, history = F.dtype.type(lr / batch), []
    for _ in range(epochs):
        total = _thin.epoch(F, y, rng.permutation(n), W, b, rate, rate * F.dtype.type(shift), batch)
        history.append(float(total) / (n // batch * batch))
    return np.ascontiguousarray(W.T), b, history
