"""Training of all weights of a network by the paper's recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from implicitnn import _validate
from implicitnn._networks.classifier import checked
from implicitnn._networks.descent import Recipe, require_recipe
from implicitnn._networks.nets import ExplicitNet, ImplicitNet

Net = ImplicitNet | ExplicitNet


@dataclass(frozen=True)
class History:
    """What happened in training.

    Attributes
    ----------
    losses, accuracies : mean over each epoch, taken as the weights change.
    not_converged : samples, summed over the batches, whose equilibrium or adjoint failed.
    iterations : mean number of iterations of a forward solve, by epoch; empty for explicit nets.
        Both count the solves of the penalty, and none of ``after_epoch``.
    finite : whether loss and weights stayed finite; training stops where the loss does not.
    """

    losses: tuple[float, ...]
    accuracies: tuple[float, ...]
    not_converged: int
    iterations: tuple[float, ...]
    finite: bool


def train(
    net: Net,
    X: ArrayLike,
    y: ArrayLike,
    rng: np.random.Generator | int,
    recipe: Recipe | None = None,
    *,
    penalty: Callable[[torch.Tensor], torch.Tensor] | None = None,
    after_epoch: Callable[[int], None] | None = None,
) -> History:
    r"""Train every weight that requires a gradient, by plain SGD on the cross-entropy.

    The weights are N(0, 1) at the start and all factors stand in the forward pass, so the kernel of
    the linearised training at infinite width is `kernels.ntk` with all weights, and one learning
    rate serves every width. A readout initialised in :math:`\pm m^{-1/2}`, as in training the
    readout alone, would leave the hidden weights all but fixed: their share of the kernel is of
    order :math:`a^2`.

    Parameters
    ----------
    net : ImplicitNet or ExplicitNet
        With as many outputs as classes; changed in place.
    X, y : (n, p) array and (n,) labels 0..K-1
    rng : numpy.random.Generator or int
        Order of the samples.
    recipe : Recipe
        Learning rate, epochs and batch; Recipe() by default.
    penalty : callable
        Takes a batch (n, p) and returns a scalar added to the loss, such as a multiple of
        `jacobian_penalty`.
    after_epoch : callable
        Called with the number of the epoch just finished, from 1.

    Returns
    -------
    History
        Samples whose solves failed are counted. A loss that is not finite ends the training.

    Raises
    ------
    TypeError
        net is no network of this module, or recipe no Recipe.
    ValueError
        Shapes or labels do not fit, fewer samples than a batch, or no weight to train.

    Examples
    --------
    >>> from implicitnn.activations import tanh
    >>> from implicitnn.specs import DEQ
    >>> net = ImplicitNet(DEQ(tanh, 0.2), 4, 32, outputs=2, rng=0)
    >>> X, y = np.eye(4).repeat(20, axis=0), np.array([0, 1, 0, 1]).repeat(20)
    >>> history = train(net, X, y, 0, Recipe(epochs=5, batch=20))
    >>> history.losses[-1] < history.losses[0], history.not_converged
    (True, 0)
    """
    if not isinstance(net, ImplicitNet | ExplicitNet):
        raise TypeError(f"net must be an ImplicitNet or an ExplicitNet, got {type(net).__name__}")
    weights = [p for p in net.parameters() if p.requires_grad]
    if not weights:
        raise ValueError("net has no weights to train: none requires a gradient")
    recipe, generator = require_recipe(recipe), _validate.generator(rng)
    rows, labels, k = checked(_validate.real_array(X, "X", 2), y)
    if net.a.shape[0] != k:
        raise ValueError(f"the network has {net.a.shape[0]} outputs, the labels {k} classes")
    if recipe.batch > len(rows):
        raise ValueError(f"batch must not exceed the {len(rows)} samples, got {recipe.batch}")
    # A copy: the caller's array may be read-only, which a tensor must not be.
    x = torch.tensor(rows, device=net.a.device, dtype=net.a.dtype)
    targets = torch.from_numpy(labels).to(net.a.device)
    optimiser = torch.optim.SGD(weights, lr=recipe.lr)
    missed = 0
    losses, accuracies, iterations = [], [], []
    finite = True
    for epoch in range(1, recipe.epochs + 1):
        order = generator.permutation(len(rows))
        before = _totals(net)
        loss, accuracy = _epoch(net, x, targets, order, recipe.batch, optimiser, penalty)
        losses.append(loss)
        accuracies.append(accuracy)
        solves, steps, failed = (b - a for a, b in zip(before, _totals(net), strict=True))
        missed += failed
        if isinstance(net, ImplicitNet):
            iterations.append(steps / solves)
        finite = bool(np.isfinite(loss))
        if not finite:
            break
        if after_epoch is not None:
            after_epoch(epoch)
    finite = finite and all(bool(torch.isfinite(p).all()) for p in net.parameters())
    return History(tuple(losses), tuple(accuracies), missed, tuple(iterations), finite)


def _epoch(
    net: Net,
    x: torch.Tensor,
    targets: torch.Tensor,
    order: NDArray[np.int64],
    batch: int,
    optimiser: torch.optim.SGD,
    penalty: Callable[[torch.Tensor], torch.Tensor] | None,
) -> tuple[float, float]:
    total, right, count = 0.0, 0, 0
    for start in range(0, len(order) - batch + 1, batch):
        chosen = torch.from_numpy(order[start : start + batch]).to(x.device)
        rows, labels = x[chosen], targets[chosen]
        optimiser.zero_grad()
        logits = net(rows)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        (loss if penalty is None else loss + penalty(rows)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        total += batch * float(loss.detach())
        right += int((logits.detach().argmax(dim=1) == labels).sum())
        count += batch
        if not np.isfinite(total):
            break
    return total / count, right / count


def _totals(net: Net) -> tuple[int, int, int]:
    """Forward solves, their iterations, and failed samples so far."""
    if not isinstance(net, ImplicitNet):
        return 0, 0, 0
    totals = net.log.totals
    failed = totals.get("forward_not_converged", 0) + totals.get("backward_not_converged", 0)
    return totals.get("forward_solves", 0), totals.get("forward_iterations", 0), failed
