"""Stochastic gradient descent on a readout, in the precision of the features."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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
) -> tuple[Floating, Floating, list[float]]:
    """Weights (m, K), bias (K,), and the mean training loss during each epoch.

    Starts from uniform numbers within 1/sqrt(m), shuffles each epoch, leaves out the last batch
    where it is not full.
    """
    n, m = F.shape
    bound = 1.0 / np.sqrt(m)
    W = rng.uniform(-bound, bound, (m, classes)).astype(F.dtype)
    b = rng.uniform(-bound, bound, classes).astype(F.dtype)
    history = []
    places = np.arange(batch)
    rate = F.dtype.type(lr / batch)
    for _ in range(epochs):
        order, total = rng.permutation(n), 0.0
        for start in range(0, n - batch + 1, batch):
            chosen = order[start : start + batch]
            rows, labels = F[chosen], y[chosen]
            error = rows @ W
            error += b
            error -= error.max(axis=1, keepdims=True)
            picked = error[places, labels]
            np.exp(error, out=error)
            size = error.sum(axis=1, keepdims=True)
            total += float(np.log(size[:, 0]).sum() - picked.sum())
            error /= size
            error[places, labels] -= 1.0
            W -= rate * (rows.T @ error)
            b -= rate * error.sum(axis=0)
        history.append(total / (n // batch * batch))
    return W, b, history
