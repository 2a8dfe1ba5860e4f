"""Products of many samples with few columns, and the loops over samples that need them.

Features F are (n, m), C-contiguous, n large; weights are (K, m) with K about ten. A matrix product
of this shape is bound by memory: here a row of F is read once for all columns, four rows at a time,
and a batch that was just read for its logits is still in the cache for its gradient. Rows are named
by indices, so no part of F is ever copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])
# numpy arrays of one of two precisions, which numba tells apart.
Array = Any
# Columns whose part of four rows and of ten weights stays in the first-level cache.
COLUMNS = 512
BLOCK = 128


def _compiled(function: Function) -> Function:
    # Sums may be reordered: without that no dot product is vectorised.
    flags = {"reassoc", "contract", "nsz"}
    wrapper: Any = njit(nogil=True, cache=True, fastmath=flags, error_model="numpy")
    result: Function = wrapper(function)
    return result


@_compiled
def scores(F: Array, rows: Array, W: Array, out: Array) -> None:
    """Make ``out[k, i]`` the product of F[rows[i]] and W[k]."""
    size, m = rows.shape[0], F.shape[1]
    whole = size - size % 4
    for q in range(0, whole, 4):
        r0, r1, r2, r3 = F[rows[q]], F[rows[q + 1]], F[rows[q + 2]], F[rows[q + 3]]
        for k in range(W.shape[0]):
            w = W[k]
            a0 = a1 = a2 = a3 = W.dtype.type(0)
            for j in range(m):
                a0 += r0[j] * w[j]
                a1 += r1[j] * w[j]
                a2 += r2[j] * w[j]
                a3 += r3[j] * w[j]
            out[k, q], out[k, q + 1], out[k, q + 2], out[k, q + 3] = a0, a1, a2, a3
    for q in range(whole, size):
        r0 = F[rows[q]]
        for k in range(W.shape[0]):
            w = W[k]
            a0 = W.dtype.type(0)
            for j in range(m):
                a0 += r0[j] * w[j]
            out[k, q] = a0


@_compiled
def add(F: Array, rows: Array, E: Array, W: Array) -> None:
    """Add the sum over i of E[k, i] F[rows[i]] to W[k]."""
    size, m = rows.shape[0], F.shape[1]
    whole = size - size % 4
    for left in range(0, m, COLUMNS):
        right = min(m, left + COLUMNS)
        for q in range(0, whole, 4):
            r0, r1 = F[rows[q], left:right], F[rows[q + 1], left:right]
            r2, r3 = F[rows[q + 2], left:right], F[rows[q + 3], left:right]
            for k in range(W.shape[0]):
                w = W[k, left:right]
                e0, e1, e2, e3 = E[k, q], E[k, q + 1], E[k, q + 2], E[k, q + 3]
                for j in range(right - left):
                    w[j] += e0 * r0[j] + e1 * r1[j] + e2 * r2[j] + e3 * r3[j]
        for q in range(whole, size):
            r0 = F[rows[q], left:right]
            for k in range(W.shape[0]):
                w, e0 = W[k, left:right], E[k, q]
                for j in range(right - left):
                    w[j] += e0 * r0[j]


@_compiled
def normalise(E: Array, labels: Array) -> float:
    """Turn logits (K, size) into probabilities in place; return the sum of the cross-entropies."""
    total = 0.0
    for i in range(labels.shape[0]):
        top = E[0, i]
        for k in range(1, E.shape[0]):
            top = max(top, E[k, i])
        picked, size = E[labels[i], i] - top, E.dtype.type(0)
        for k in range(E.shape[0]):
            E[k, i] = np.exp(E[k, i] - top)
            size += E[k, i]
        for k in range(E.shape[0]):
            E[k, i] /= size
        total += np.log(size) - picked
    return total


@_compiled
def epoch(
    F: Array,
    labels: Array,
    order: Array,
    W: Array,
    b: Array,
    rate: Any,
    bias_rate: Any,
    batch: int,
) -> float:
    """One epoch of gradient descent on the cross-entropy, in place; return the sum of the losses.

    Rates are those of weights and bias over the batch. The last batch is left out where it is not
    full.
    """
    error, own = np.empty((W.shape[0], batch), W.dtype), np.empty(batch, labels.dtype)
    total = 0.0
    for start in range(0, order.shape[0] - batch + 1, batch):
        rows = order[start : start + batch]
        scores(F, rows, W, error)
        for i in range(batch):
            own[i] = labels[rows[i]]
            for k in range(W.shape[0]):
                error[k, i] += b[k]
        total += normalise(error, own)
        for i in range(batch):
            error[own[i], i] -= 1
        for k in range(W.shape[0]):
            size = W.dtype.type(0)
            for i in range(batch):
                size += error[k, i]
                error[k, i] *= -rate
            b[k] -= bias_rate * size
        add(F, rows, error, W)
    return total


@_compiled
def gradient(F: Array, labels: Array, rows: Array, W: Array, P: Array, out: Array) -> float:
    """Add the gradient of the summed cross-entropy over rows to ``out``; return its value.

    Works in the precision of W. P (K, len(rows)) is filled with the probabilities.
    """
    total = 0.0
    for start in range(0, rows.shape[0], BLOCK):
        part = rows[start : start + BLOCK]
        error = np.empty((W.shape[0], part.shape[0]), W.dtype)
        own = np.empty(part.shape[0], labels.dtype)
        scores(F, part, W, error)
        for i in range(part.shape[0]):
            own[i] = labels[part[i]]
        total += normalise(error, own)
        for i in range(part.shape[0]):
            for k in range(W.shape[0]):
                P[k, start + i] = error[k, i]
            error[own[i], i] -= 1
        add(F, part, error, out)
    return total


@_compiled
def curvature(F: Array, rows: Array, P: Array, first: int, last: int, D: Array, out: Array) -> None:
    """Add the Hessian of the cross-entropies of rows[first:last], times D, to ``out``.

    P (K, len(rows)) holds the probabilities. Where one class is all but certain the differences of
    the logits nearly cancel: they are taken in the precision of P.
    """
    for start in range(first, last, BLOCK):
        part = rows[start : min(start + BLOCK, last)]
        change = np.empty((D.shape[0], part.shape[0]), D.dtype)
        scores(F, part, D, change)
        for i in range(part.shape[0]):
            mean = P.dtype.type(0)
            for k in range(D.shape[0]):
                mean += P[k, start + i] * change[k, i]
            for k in range(D.shape[0]):
                change[k, i] = P[k, start + i] * (change[k, i] - mean)
        add(F, part, change, out)
