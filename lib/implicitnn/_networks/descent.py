"""Stochastic gradient descent on a readout, in the precision of the features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from implicitnn._networks import thin as _thin

Floating = NDArray[np.floating]
IntArray = NDArray[np.int64]


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
    elif start.shape == (m, classes):
        b, shift = np.zeros(classes, F.dtype), 0.0
    else:
        raise ValueError(f"start must be {(m, classes)}, got {start.shape}")
    W = np.array(start.T, dtype=F.dtype, order="C")
    rate, history = F.dtype.type(lr / batch), []
    for _ in range(epochs):
        total = _thin.epoch(F, y, rng.permutation(n), W, b, rate, rate * F.dtype.type(shift), batch)
        history.append(total / (n // batch * batch))
    return np.ascontiguousarray(W.T), b, history
