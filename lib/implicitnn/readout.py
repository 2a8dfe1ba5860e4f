r"""Classifiers on the features of a network: the paper's recipe, two exact readouts, all weights.

A network with random hidden layers is judged through its readout. Gradient descent mixes what the
features are worth with how far it has come; the exact readouts do not. Labels are 0..K-1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn._networks import classifier as _classifier
from implicitnn._networks import descent as _descent
from implicitnn._networks import ridge as _ridge
from implicitnn._networks.classifier import Readout
from implicitnn._networks.descent import Recipe

__all__ = [
    "METHODS",
    "PENALTIES",
    "Readout",
    "Recipe",
    "Selection",
    "Split",
    "ridge",
    "select",
    "sgd",
    "softmax",
]

METHODS = ("softmax", "ridge")
PENALTIES = tuple(10.0**-k for k in range(2, 9))


def sgd(
    F: ArrayLike,
    y: ArrayLike,
    rng: np.random.Generator | int,
    recipe: Recipe | None = None,
    *,
    start: ArrayLike | None = None,
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
    start : (m, K) array, optional
        Weights to start from; then there is no bias.

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
    recipe = _descent.require_recipe(recipe)
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
        start=None if start is None else _classifier.started(start, (rows.shape[1], k)),
    )
    if not (np.isfinite(W).all() and np.isfinite(b).all()):
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
        Features, in float32 or float64; they are not copied. Values, gradients and the
        certificate are in float64; only the Hessian products of the Newton steps are in the
        precision of F.
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
        Shapes, labels, penalty or gap out of range; F so large that its squares overflow; a
        penalty below their rounding.

    Notes
    -----
    Newton steps by conjugate gradients, preconditioned by :math:`hF^TF/n + \lambda` with h the mean
    of p(1 - p). Every product with the Hessian is one pass over F, 4 n m K operations; the start
    takes n m^2 + m^3/3.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> F, y = rng.standard_normal((60, 5)), rng.integers(0, 3, 60)
    >>> found = softmax(F, y, 0.01)
    >>> found.gap < 1e-9, found.weights.shape
    (True, (5, 3))
    """
    rows, labels, k = _classifier.checked(F, y)
    targets, used = _classifier.onehot(labels, k), np.arange(len(rows))
    moments = _ridge.moments(rows, targets, used)
    return _classifier.minimise(rows, labels, k, used, moments, penalty, gap, start)


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
    return _classifier.from_moments(_ridge.moments(rows, targets, np.arange(len(rows))), penalty)


@dataclass(frozen=True)
class Selection:
    """A readout whose penalty was chosen on a part of the training set held out.

    Attributes
    ----------
    readout : fitted to the whole training set with the penalty chosen.
    penalties, losses, accuracies : the penalties tried, and mean loss and accuracy on the held-out
        part.
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
        """Whether a wider grid might do better; a walk that ended early is not at its edge."""
        return self.readout.penalty in (self.penalties[0], self.penalties[-1])


class Split:
    """A training set with a part held out, shared by several selections.

    The part is drawn within each class. The moments of both parts, n m^2 operations, are taken once
    for all methods and penalties.

    Parameters
    ----------
    F, y : as in `softmax`.
    rng : numpy.random.Generator or int
        Draws the part held out.
    holdout : float
        Share of each class held out, between 0 and 1.

    Raises
    ------
    ValueError : an argument is out of range, or the part held out lacks a class.

    Examples
    --------
    >>> Split(np.eye(4).repeat(5, axis=0), np.arange(4).repeat(5), 0, 0.2).held.sum()
    np.int64(4)
    """

    def __init__(
        self, F: ArrayLike, y: ArrayLike, rng: np.random.Generator | int, holdout: float = 0.1
    ) -> None:
        rows, labels, k = _classifier.checked(F, y)
        held = _classifier.held_out(labels, k, holdout, _validate.generator(rng))
        self._parts = _classifier.Parts(rows, labels, k, held)

    @property
    def held(self) -> NDArray[np.bool_]:
        """(n,) True for the samples held out."""
        return self._parts.held

    def select(
        self,
        method: str = "softmax",
        *,
        penalties: Sequence[float] = PENALTIES,
        gap: float = 1e-9,
        path_gap: float | None = None,
        patience: int | None = None,
    ) -> Selection:
        """Choose the penalty on the part held out, then fit to all samples.

        The penalty with the smallest held-out loss is taken: the cross-entropy for "softmax", the
        mean squared error for "ridge". Penalties are tried from the largest on.

        Parameters
        ----------
        method : {"softmax", "ridge"}
        penalties : sequence of float
            The grid, at least two, none twice.
        gap, path_gap : float
            Certified gaps of the last softmax fit, and of those on the way (by default the same).
        patience : int, optional
            End the walk after so many penalties in a row that are no better than the best so far.

        Raises
        ------
        ValueError : an argument is out of range.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(0, 2, 200)
        >>> F = rng.standard_normal((200, 90)) + y[:, None]
        >>> chosen = Split(F, y, 1).select("ridge", penalties=(1e3, 10.0, 0.1, 1e-3), patience=1)
        >>> chosen.penalties, chosen.readout.penalty
        ((1000.0, 10.0, 0.1), 10.0)
        """
        _validate.one_of(method, "method", METHODS)
        grid = sorted(set(_validate.reals(penalties, "penalties")), reverse=True)
        if len(grid) != len(penalties) or len(grid) < 2 or grid[-1] <= 0.0:
            raise ValueError(
                f"penalties must be at least two different positive numbers, got {penalties}"
            )
        wait = len(grid) if patience is None else _validate.integer(patience, "patience", 1)
        parts = self._parts
        gap = _validate.positive(gap, "gap")
        coarse = gap if path_gap is None else _validate.positive(path_gap, "path_gap")
        fit = _softmax_fits(parts, coarse) if method == "softmax" else _ridge_fits(parts, grid)
        out, labels = parts.rows[parts.held], parts.labels[parts.held]
        fits: list[Readout] = []
        losses: list[float] = []
        for penalty in grid:
            fits.append(fit(penalty, fits[-1] if fits else None))
            if method == "softmax":
                losses.append(fits[-1].loss(out, labels))
            else:
                rest = fits[-1].logits(out) - parts.targets[parts.held]
                losses.append(float((rest**2).mean()))
            if len(losses) - 1 - int(np.argmin(losses)) >= wait:
                break
        best = int(np.argmin(losses))
        return Selection(
            _final(parts, method, fits[best], gap),
            tuple(grid[: len(fits)]),
            tuple(losses),
            tuple(found.accuracy(out, labels) for found in fits),
            tuple(found.gap for found in fits),
        )


Fit: TypeAlias = Callable[[float, Readout | None], Readout]


def _softmax_fits(parts: _classifier.Parts, gap: float) -> Fit:
    used = np.flatnonzero(~parts.held)

    def fit(penalty: float, last: Readout | None) -> Readout:
        return _classifier.minimise(
            parts.rows, parts.labels, parts.classes, used, parts.kept, penalty, gap, last
        )

    return fit


def _ridge_fits(parts: _classifier.Parts, grid: list[float]) -> Fit:
    if int((~parts.held).sum()) >= parts.rows.shape[1]:
        return lambda penalty, last: _classifier.from_moments(parts.kept, penalty)
    kept, targets = parts.rows[~parts.held], parts.targets[~parts.held]
    weights = dict(zip(grid, _ridge.dual(kept, targets, grid), strict=True))
    return lambda penalty, last: _classifier.as_ridge(kept, targets, penalty, weights[penalty])


def _final(parts: _classifier.Parts, method: str, best: Readout, gap: float) -> Readout:
    """Fit to all samples with the penalty of the best fit."""
    rows, targets, penalty = parts.rows, parts.targets, best.penalty
    if method == "softmax":
        used = np.arange(len(rows))
        return _classifier.minimise(
            rows, parts.labels, parts.classes, used, parts.whole, penalty, gap, best
        )
    if int((~parts.held).sum()) >= rows.shape[1]:
        return _classifier.from_moments(parts.whole, penalty)
    W = _ridge.dual(rows, targets, [penalty])[0]
    return _classifier.as_ridge(rows, targets, penalty, W)


def select(
    F: ArrayLike,
    y: ArrayLike,
    rng: np.random.Generator | int,
    method: str = "softmax",
    *,
    penalties: Sequence[float] = PENALTIES,
    holdout: float = 0.1,
    gap: float = 1e-9,
    patience: int | None = None,
) -> Selection:
    """Choose the penalty on a held-out part of the training set, then fit to all of it.

    `Split` for one method; the test set is not seen. Arguments are those of `Split` and of its
    method ``select``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 200)
    >>> F = rng.standard_normal((200, 3)) + y[:, None]
    >>> chosen = select(F, y, 1, "ridge", penalties=(1.0, 0.1, 0.01))
    >>> len(chosen.losses), chosen.readout.penalty in chosen.penalties
    (3, True)
    """
    _validate.one_of(method, "method", METHODS)
    split = Split(F, y, rng, holdout)
    return split.select(method, penalties=penalties, gap=gap, patience=patience)
