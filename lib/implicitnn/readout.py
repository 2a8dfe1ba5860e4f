r"""Classifiers on the features of a network: the paper's recipe, two exact readouts, all weights.

A network with random hidden layers is judged through its readout. Gradient descent mixes what the
features are worth with how far it has come; the exact readouts do not. Labels are 0..K-1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn._networks import classifier as _classifier
from implicitnn._networks import descent as _descent
from implicitnn._networks import ridge as _ridge
from implicitnn._networks.classifier import IntArray, Readout

__all__ = [
    "METHODS",
    "PENALTIES",
    "Readout",
    "Recipe",
    "Selection",
    "ridge",
    "select",
    "sgd",
    "softmax",
]

METHODS = ("softmax", "ridge")
PENALTIES = tuple(10.0**-k for k in range(2, 9))


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


def sgd(
    F: ArrayLike, y: ArrayLike, rng: np.random.Generator | int, recipe: Recipe | None = None
) -> Readout:
    r"""Train a readout with bias by the paper's recipe.

    Starts from uniform numbers in :math:`\pm m^{-1/2}`, as PyTorch's linear layer does. Runs in the
    precision of F.

    Parameters
    ----------
    F : (n, m) array of floats
        Features.
    y : (n,) array of int
        Labels 0..K-1, each of which occurs.
    rng : numpy.random.Generator or int
        Start and order of the samples.
    recipe : Recipe
        Recipe() by default.

    Raises
    ------
    ValueError
        Shapes do not fit, a label is missing, fewer samples than a batch, or the weights are no
        longer finite at the end.

    References
    ----------
    Ling et al. 2024, the experiments; start and order as in the authors' public code.

    Examples
    --------
    >>> F = np.eye(4).repeat(50, axis=0)
    >>> y = np.arange(4).repeat(50)
    >>> sgd(F, y, 0, Recipe(epochs=20, batch=20)).accuracy(F, y)
    1.0
    """
    rows, labels, k = _classifier.checked(F, y)
    recipe = recipe or Recipe()
    if recipe.batch > len(rows):
        raise ValueError(f"batch must not exceed the {len(rows)} samples, got {recipe.batch}")
    W, b, history = _descent.softmax_sgd(
        rows,
        labels,
        k,
        _validate.generator(rng),
        lr=recipe.lr,
        epochs=recipe.epochs,
        batch=recipe.batch,
    )
    if not np.isfinite(W).all():
        raise ValueError(f"gradient descent diverged with {recipe}: take a smaller lr")
    return Readout(W, b, 0.0, history[-1], float("nan"), recipe.epochs, tuple(history))


def softmax(
    F: ArrayLike, y: ArrayLike, penalty: float, *, gap: float = 1e-9, start: Readout | None = None
) -> Readout:
    r"""Return the minimiser of penalised cross-entropy, with a certificate.

    .. math:: L(W) = \frac1n\sum_i\left(\log\sum_k e^{f_i^Tw_k} - f_i^Tw_{y_i}\right)
        + \frac\lambda2\|W\|_F^2, \qquad L(W) - \min L \le \frac{\|\nabla L(W)\|_F^2}{2\lambda}.

    The bound holds since L is :math:`\lambda`-strongly convex. Without the penalty wide features
    separate the training set and no minimiser exists. There is no bias: the features are centred.

    Parameters
    ----------
    F : (n, m) array
        Features; float64 is used throughout, in two copies.
    y : (n,) array of int
        Labels 0..K-1.
    penalty : float
        :math:`\lambda > 0`.
    gap : float
        Bound to reach.
    start : Readout, optional
        Where to begin, such as the minimiser for another penalty.

    Returns
    -------
    Readout
        ``gap`` is the bound reached; rounding may leave it above the one asked for.

    Raises
    ------
    ValueError
        Shapes, labels, penalty or gap out of range.

    Notes
    -----
    Trust-region Newton steps by conjugate gradients, in coordinates whitened by :math:`hF^TF/n +
    \lambda`. About 4 n m K operations a product, and n m^2 + m^3 at the start.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> F, y = rng.standard_normal((60, 5)), rng.integers(0, 3, 60)
    >>> found = softmax(F, y, 0.01)
    >>> found.gap < 1e-9, found.weights.shape
    (True, (5, 3))
    """
    rows, labels, k = _classifier.checked(F, y)
    exact = rows.astype(np.float64)
    gram = exact.T @ exact / len(exact)
    return _classifier.minimise(exact, gram, labels, k, penalty, gap, start)


def ridge(F: ArrayLike, y: ArrayLike, penalty: float) -> Readout:
    r"""Return the ridge regression of the labels, in closed form.

    .. math:: \frac1n\|FW - T\|_F^2 + \lambda\|W\|_F^2, \qquad T = \text{one-hot}(y) - 1/K,
        \qquad W = (F^TF + n\lambda I)^{-1}F^TT .

    The smaller of the two systems, (m, m) or (n, n), is solved in float64. ``gap`` is the bound
    :math:`\|\nabla\|^2/(4\lambda)` at the solution that rounding leaves.

    Examples
    --------
    >>> F, y = np.eye(4), np.arange(4)
    >>> ridge(F, y, 0.25).weights.round(3).tolist()[0]
    [0.375, -0.125, -0.125, -0.125]
    """
    rows, labels, k = _classifier.checked(F, y)
    penalty = _validate.positive(penalty, "penalty")
    targets = _classifier.onehot(labels, k) - 1.0 / k
    if len(rows) < rows.shape[1]:
        return _classifier.as_ridge(
            rows, targets, penalty, _ridge.dual(rows, targets, [penalty])[0]
        )
    weights = _ridge.from_moments(_ridge.moments(rows, targets), penalty)
    return _classifier.as_ridge(rows, targets, penalty, weights)


@dataclass(frozen=True)
class Selection:
    """A readout whose penalty was chosen on a part of the training set held out.

    Attributes
    ----------
    readout : fitted to the whole training set with the penalty chosen.
    penalties, losses, accuracies : the grid, and mean loss and accuracy on the held-out part.
    gaps : certified gap of each fit on the rest.
    at_edge : whether the penalty chosen is the first or last of the grid.
    """

    readout: Readout
    penalties: tuple[float, ...]
    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    gaps: tuple[float, ...]

    @property
    def at_edge(self) -> bool:
        """Whether a wider grid might do better."""
        return self.readout.penalty in (self.penalties[0], self.penalties[-1])


def select(
    F: ArrayLike,
    y: ArrayLike,
    rng: np.random.Generator | int,
    method: str = "softmax",
    *,
    penalties: Sequence[float] = PENALTIES,
    holdout: float = 0.1,
    gap: float = 1e-9,
) -> Selection:
    """Choose the penalty on a held-out part of the training set, then fit to all of it.

    The part is drawn within each class. The penalty with the smallest held-out loss is taken: the
    cross-entropy for "softmax", the mean squared error for "ridge". The test set is not seen.

    Parameters
    ----------
    F, y : as in `softmax`.
    rng : numpy.random.Generator or int
        Draws the part held out.
    method : {"softmax", "ridge"}
    penalties : sequence of float
        The grid, at least two, none twice.
    holdout : float
        Share of each class held out, between 0 and 1.
    gap : float
        Certified gap of the softmax fits.

    Raises
    ------
    ValueError : an argument is out of range, or the part held out lacks a class.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200)
    >>> F = rng.standard_normal((200, 3)) + y[:, None]
    >>> chosen = select(F, y, 1, "ridge", penalties=(1.0, 0.1, 0.01))
    >>> len(chosen.losses), chosen.readout.penalty in chosen.penalties
    (3, True)
    """
    rows, labels, k = _classifier.checked(F, y)
    _validate.one_of(method, "method", METHODS)
    grid = tuple(sorted({_validate.positive(p, "penalties") for p in penalties}, reverse=True))
    if len(grid) != len(penalties) or len(grid) < 2:
        raise ValueError(f"penalties must be at least two different numbers, got {penalties}")
    held = _classifier.held_out(labels, k, holdout, _validate.generator(rng))
    if method == "softmax":
        return _select_softmax(rows, labels, k, held, grid, gap)
    return _select_ridge(rows, labels, k, held, grid)


def _select_softmax(
    rows: NDArray[np.floating],
    labels: IntArray,
    k: int,
    held: NDArray[np.bool_],
    grid: tuple[float, ...],
    gap: float,
) -> Selection:
    part = rows[~held].astype(np.float64)
    gram = part.T @ part / len(part)
    fits: list[Readout] = []
    for penalty in grid:
        last = fits[-1] if fits else None
        fits.append(_classifier.minimise(part, gram, labels[~held], k, penalty, gap, last))
    losses = tuple(fit.loss(rows[held], labels[held]) for fit in fits)
    accuracies = tuple(fit.accuracy(rows[held], labels[held]) for fit in fits)
    best = int(np.argmin(losses))
    del part
    final = softmax(rows, labels, grid[best], gap=gap, start=fits[best])
    return Selection(final, grid, losses, accuracies, tuple(fit.gap for fit in fits))


def _select_ridge(
    rows: NDArray[np.floating],
    labels: IntArray,
    k: int,
    held: NDArray[np.bool_],
    grid: tuple[float, ...],
) -> Selection:
    targets = _classifier.onehot(labels, k) - 1.0 / k
    kept, out = rows[~held], rows[held]
    primal = len(kept) >= rows.shape[1]
    if primal:
        part = _ridge.moments(kept, targets[~held])
        weights = [_ridge.from_moments(part, penalty) for penalty in grid]
    else:
        weights = _ridge.dual(kept, targets[~held], list(grid))
    fits = [
        _classifier.as_ridge(kept, targets[~held], p, W) for p, W in zip(grid, weights, strict=True)
    ]
    losses = tuple(float(((out @ f.weights - targets[held]) ** 2).mean()) for f in fits)
    accuracies = tuple(fit.accuracy(out, labels[held]) for fit in fits)
    penalty = grid[int(np.argmin(losses))]
    if primal:
        whole = part + _ridge.moments(out, targets[held])
        final = _classifier.as_ridge(rows, targets, penalty, _ridge.from_moments(whole, penalty))
    else:
        final = _classifier.as_ridge(
            rows, targets, penalty, _ridge.dual(rows, targets, [penalty])[0]
        )
    return Selection(final, grid, losses, accuracies, tuple(fit.gap for fit in fits))
