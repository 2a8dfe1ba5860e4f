"""What a readout is, the checks of its data, and the exact fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from implicitnn import _validate
from implicitnn._networks import ridge as _ridge
from implicitnn._networks import softmax as _softmax
from implicitnn._networks.arrays import numbers
from implicitnn._networks.ridge import BLOCK, FloatArray, Moments

IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Readout:
    """A linear classifier: logits F @ weights + bias.

    Attributes
    ----------
    weights, bias : (m, K) and (K,).
    penalty : lambda; 0 for gradient descent.
    objective : value of what was minimised, on the training set.
    gap : certified bound of objective minus minimum; NaN where there is none.
    work : epochs of gradient descent, or passes over the samples of an exact fit.
    history : mean training loss during each epoch; empty for exact readouts.
    """

    weights: NDArray[np.floating]
    bias: NDArray[np.floating]
    penalty: float
    objective: float
    gap: float
    work: int
    history: tuple[float, ...] = ()

    def logits(self, F: ArrayLike) -> NDArray[np.floating]:
        """Return the logits of features in rows, (n, K), in the wider of the two precisions.

        Raises
        ------
        ValueError : F is not (n, m), is empty, or its logits are not finite.
        """
        rows = numbers(F, "F", self.weights.shape[0])
        out = np.empty(
            (len(rows), self.weights.shape[1]), np.result_type(rows.dtype, self.weights.dtype)
        )
        # In blocks: a copy of all features in another precision may not fit.
        for start in range(0, len(rows), BLOCK):
            part = slice(start, start + BLOCK)
            out[part] = rows[part] @ self.weights + self.bias
        if not np.isfinite(out).all():
            raise ValueError("F must be finite, and so must be its logits")
        return out

    def accuracy(self, F: ArrayLike, y: ArrayLike) -> float:
        """Return the share of samples whose largest logit is that of their label, 0..K-1."""
        logits = self.logits(F)
        return float((logits.argmax(axis=1) == _labels(y, *logits.shape)).mean())

    def loss(self, F: ArrayLike, y: ArrayLike) -> float:
        """Return the mean cross-entropy, without the penalty."""
        logits = self.logits(F)
        labels = _labels(y, *logits.shape)
        picked = logits[np.arange(len(labels)), labels]
        return float((special.logsumexp(logits, axis=1) - picked).mean())


@dataclass(eq=False)
class Parts:
    """A training set cut in two, with the moments of both parts, taken when first asked for."""

    rows: NDArray[np.floating]
    labels: IntArray
    classes: int
    held: NDArray[np.bool_]

    def __post_init__(self) -> None:
        self.targets = onehot(self.labels, self.classes) - 1.0 / self.classes

    @cached_property
    def kept(self) -> Moments:
        return _ridge.moments(self.rows, self.targets, np.flatnonzero(~self.held))

    @cached_property
    def whole(self) -> Moments:
        return self.kept + _ridge.moments(self.rows, self.targets, np.flatnonzero(self.held))


def minimise(
    rows: NDArray[np.floating],
    labels: IntArray,
    k: int,
    used: IntArray,
    moments: Moments,
    penalty: float,
    gap: float,
    start: Readout | None,
) -> Readout:
    penalty, gap = _validate.positive(penalty, "penalty"), _validate.positive(gap, "gap")
    shape = (rows.shape[1], k)
    if start is not None and not isinstance(start, Readout):
        raise TypeError(f"start must be a Readout, got {type(start).__name__}")
    first = np.zeros(shape) if start is None else started(start.weights, shape)
    found = _softmax.minimise(rows, labels, used, moments, penalty, gap, first)
    return Readout(found.weights, np.zeros(k), penalty, found.objective, found.gap, found.passes)


def from_moments(moments: Moments, penalty: float) -> Readout:
    W = _ridge.from_moments(moments, penalty)
    objective, gap = _ridge.judged(moments, penalty, W)
    return Readout(W, np.zeros(W.shape[1]), penalty, objective, gap, 1)


def as_ridge(
    rows: NDArray[np.floating], targets: FloatArray, penalty: float, W: FloatArray
) -> Readout:
    """The objective and the gap are taken in blocks, from the residual."""
    square, gradient = 0.0, penalty * W
    for start in range(0, len(rows), BLOCK):
        part = np.asarray(rows[start : start + BLOCK], dtype=np.float64)
        rest = part @ W - targets[start : start + BLOCK]
        square += float(np.vdot(rest, rest))
        gradient += part.T @ rest / len(rows)
    objective = square / len(rows) + penalty * float(np.vdot(W, W))
    gap = float(np.vdot(2 * gradient, 2 * gradient)) / (4.0 * penalty)
    return Readout(W, np.zeros(W.shape[1]), penalty, objective, gap, 1)


def held_out(labels: IntArray, k: int, share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    if not 0.0 < _validate.real(share, "holdout") < 1.0:
        raise ValueError(f"holdout must lie between 0 and 1, got {share}")
    held = np.zeros(len(labels), bool)
    for label in range(k):
        members = np.flatnonzero(labels == label)
        size = round(share * len(members))
        if not 0 < size < len(members):
            raise ValueError(f"holdout leaves no sample of class {label} on one side")
        held[rng.choice(members, size, replace=False)] = True
    return held


def onehot(labels: IntArray, k: int) -> FloatArray:
    return np.asarray(np.eye(k)[labels])


def started(weights: ArrayLike, shape: tuple[int, int]) -> FloatArray:
    """Weights to start from, (m, K)."""
    first = _validate.real_array(weights, "start", 2)
    if first.shape != shape:
        raise ValueError(f"start must be {shape}, got {first.shape}")
    return first


def _labels(y: ArrayLike, n: int, k: int) -> NDArray[np.integer]:
    labels = _validate.as_array(y, "y")
    if labels.shape != (n,) or labels.dtype.kind not in "iu":
        raise ValueError(f"y must be {n} integers, got {labels.dtype} {labels.shape}")
    if labels.min() < 0 or labels.max() >= k:
        raise ValueError(f"y must lie in 0..{k - 1}, got {labels.min()} to {labels.max()}")
    return labels


def checked(F: ArrayLike, y: ArrayLike) -> tuple[NDArray[np.floating], IntArray, int]:
    """Features and labels of a training set, and the number of classes."""
    rows, labels = _validate.as_array(F, "F"), _validate.as_array(y, "y")
    # Compiled loops know two precisions.
    single = rows.dtype.kind == "f" and rows.dtype.itemsize in (4, 8)
    if rows.ndim != 2 or not single or rows.size == 0:
        raise ValueError(
            f"F must be floats (n, m), float32 or float64, none empty, got {rows.dtype} "
            f"{rows.shape}"
        )
    if not all(np.isfinite(rows[i : i + BLOCK]).all() for i in range(0, len(rows), BLOCK)):
        raise ValueError("F must be finite: look at the counts of the features")
    if labels.shape != (len(rows),) or labels.dtype.kind not in "iu":
        raise ValueError(f"y must be {len(rows)} integers, got {labels.dtype} {labels.shape}")
    found = np.unique(labels)
    if found[0] != 0 or found[-1] != len(found) - 1 or len(found) < 2:
        raise ValueError(f"y must hold the labels 0..K-1, at least two, got {found.tolist()[:20]}")
    own = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("="))
    return own, labels.astype(np.int64), len(found)
