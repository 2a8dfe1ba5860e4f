r"""Study of the implicit gradients against differences and automatic differentiation (claim C2).

The loss is smooth on pieces: where no unit changes sides, of either kink, it is a rational function
of the parameters. Differences are compared with the gradient on stencils within one piece, by
halving their step until no unit changes sides; and, to show what a kink does, at a fixed step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicitnn import infinite_depth as deep
from implicitnn._validate import FloatArray, integer, real
from implicitnn.infinite_depth import Gradients, Params
from implicitnn.sweeps import Study

STEP = 1e-4
DIRECTIONS = 12
# At the smallest step the rounding of the loss, about 1e-16, gives differences off by 1e-16/step.
HALVINGS = 12
Blocks = tuple[FloatArray, FloatArray, FloatArray]


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return relative errors: finite differences, unrolled automatic differentiation, Gram.

    The first five compare derivatives along 12 random directions with fourth-order differences;
    errors are divided by the norm of the gradient. ``one_piece`` is the largest where the step is
    1e-4, halved until no unit changes sides within the stencil; ``smallest_step`` the smallest step
    that took. ``fixed_step`` is the largest at 1e-4 whatever the units do. ``straddling`` counts
    the directions in which some unit changes sides there, and ``unexplained`` is the largest of
    their errors less :func:`bias`.

    ``unrolled`` is the largest error of an entry against back-propagation through 600 layers,
    relative to the largest entry of its block. ``gram`` is the error of H against the product of
    the Jacobian with its transpose. ``margin`` is the smallest distance of a unit from one of its
    kinks, in steps of 1e-4.
    """
    N, m = (integer(settings[name], name, 1) for name in ("N", "m"))
    params, X, y = draw(N, m, real(settings["rate"], "rate"), seed)
    found = deep.gradients(params, X, y, tol=1e-15)
    return differences(params, X, y, found, seed) | {
        "unrolled": unrolled(params, X, y, found),
        "gram": gram_error(params, X),
        "margin": margin(params, X),
    }


def draw(N: int, m: int, rate: float, seed: int) -> tuple[Params, FloatArray, FloatArray]:
    """Return Gaussian parameters with gamma ||A|| = rate, unit rows, labels of both signs."""
    rng = np.random.default_rng([seed, N, m, int(1000 * rate)])
    d = N + 2
    X = rng.standard_normal((N, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    A = rng.standard_normal((m, m)) / np.sqrt(m)
    gamma = rate / deep.operator_norm(A)
    params = Params(rng.standard_normal((d, m)), A, rng.standard_normal(m) / np.sqrt(m), gamma)
    return params, X, rng.choice([-1.0, 1.0], N)


def margin(params: Params, X: FloatArray) -> float:
    """Return the smallest distance of a unit from one of its two kinks, in steps of 1e-4."""
    solved = deep.forward(params, X, tol=1e-15)
    before = params.gamma * (solved.Z @ params.A) + solved.Phi
    return float(min(np.abs(before).min(), np.abs(X @ params.W).min()) / STEP)


class Look(NamedTuple):
    """The loss at one point, and which units are on: both kinds, shape (2, N, m)."""

    loss: float
    active: NDArray[np.bool_]


def look(params: Params, X: FloatArray, y: FloatArray) -> Look:
    """Return half the squared residual, with the fixed point to rounding, and the active units."""
    Z = deep.forward(params, X, tol=1e-15).Z
    residual = Z @ params.b - y
    return Look(0.5 * float(residual @ residual), np.array([Z > 0, X @ params.W > 0]))


def moved(params: Params, along: Blocks, t: float) -> Params:
    """Return the parameters plus t times a direction."""
    W, A, b = (a + t * v for a, v in zip((params.W, params.A, params.b), along, strict=True))
    return Params(W, A, b, params.gamma)


def slope(found: Gradients, along: Blocks) -> float:
    """Return the derivative of the loss along a direction, by the formulas."""
    return sum(
        float((g * v).sum()) for g, v in zip((found.W, found.A, found.b), along, strict=True)
    )


class Stencil(NamedTuple):
    """A fourth-order difference, and the units that change sides within: indices (count, 3)."""

    derivative: float
    crossing: NDArray[np.intp]


def stencil(params: Params, X: FloatArray, y: FloatArray, along: Blocks, h: float) -> Stencil:
    """Return the difference of the loss along a direction from the points 0, h, 2h, -h, -2h."""
    seen = [look(moved(params, along, k * h), X, y) for k in (-2, -1, 0, 1, 2)]
    inner, outer = seen[3].loss - seen[1].loss, seen[4].loss - seen[0].loss
    changed = np.any([point.active != seen[2].active for point in seen], axis=0)
    return Stencil((8 * inner - outer) / (12 * h), np.argwhere(changed))


def directions(params: Params, seed: int, count: int = DIRECTIONS) -> list[Blocks]:
    """Return random directions in the space of the parameters, of norm one."""
    rng = np.random.default_rng([seed, 1])
    found = []
    for _ in range(count):
        W, A, b = (rng.standard_normal(a.shape) for a in (params.W, params.A, params.b))
        size = float(np.sqrt((W**2).sum() + (A**2).sum() + (b**2).sum()))
        found.append((W / size, A / size, b / size))
    return found


def differences(
    params: Params, X: FloatArray, y: FloatArray, found: Gradients, seed: int
) -> dict[str, float]:
    """Return the columns that compare the gradient with differences, see :func:`row`."""
    scale = float(np.sqrt(sum((g**2).sum() for g in (found.W, found.A, found.b))))
    one_piece, fixed, unexplained, steps, straddling = 0.0, 0.0, 0.0, [STEP], 0
    for along in directions(params, seed):
        exact = slope(found, along)
        first = stencil(params, X, y, along, STEP)
        fixed = max(fixed, abs(first.derivative - exact) / scale)
        if len(first.crossing):
            straddling += 1
            left = first.derivative - exact - bias(params, X, y, along, first, STEP)
            unexplained = max(unexplained, abs(left) / scale)
        h, inside = within(params, X, y, along, first)
        one_piece = max(one_piece, abs(inside.derivative - exact) / scale)
        steps.append(h)
    return {
        "one_piece": one_piece, "smallest_step": min(steps), "fixed_step": fixed,
        "straddling": straddling, "unexplained": unexplained,
    }  # fmt: skip


def within(
    params: Params, X: FloatArray, y: FloatArray, along: Blocks, first: Stencil
) -> tuple[float, Stencil]:
    """Return the first of the steps 1e-4, 5e-5, ... without a crossing, and its stencil."""
    h, found = STEP, first
    for _ in range(HALVINGS):
        if not len(found.crossing):
            return h, found
        h /= 2
        found = stencil(params, X, y, along, h)
    raise RuntimeError(f"some unit is nearer to its kink than a step of {h:g}")


def bias(
    params: Params, X: FloatArray, y: FloatArray, along: Blocks, seen: Stencil, h: float
) -> float:
    r"""Return the error that the kinks within a stencil cause, to first order in h.

    A unit that crosses its kink at t adds :math:`J (s - t)_+` to the loss at s, with the jump J of
    the slope; :func:`kink_weight` is what the difference makes of it.
    """
    total = 0.0
    for unit in seen.crossing:
        at = crossing(params, X, y, along, tuple(unit), h)
        sides = (moved(params, along, at + side) for side in (-1e-6 * h, 1e-6 * h))
        before, after = (slope(deep.gradients(p, X, y, tol=1e-15), along) for p in sides)
        total += (after - before) * kink_weight(at / h)
    return total


def crossing(
    params: Params, X: FloatArray, y: FloatArray, along: Blocks, unit: tuple[int, ...], h: float
) -> float:
    """Return where in the stencil a unit changes sides, to 1e-9 of the step."""
    on = look(params, X, y).active[unit]
    ends = (-2 * h, 2 * h)
    changed = [look(moved(params, along, t), X, y).active[unit] != on for t in ends]
    same, other = 0.0, ends[0] if changed[0] else ends[1]
    while abs(other - same) > 1e-9 * h:
        middle = 0.5 * (same + other)
        if look(moved(params, along, middle), X, y).active[unit] == on:
            same = middle
        else:
            other = middle
    return 0.5 * (same + other)


def kink_weight(t: float) -> float:
    r"""Return the error of the difference at 0 for :math:`s\mapsto(s-t)_+`; s and t in steps.

    It is :math:`(6 - 7t)/12` for t from 0 to 1, :math:`-(2 - t)/12` from 1 to 2, and odd: a kink
    just beside the point costs half of the jump, at any step.

    Examples
    --------
    >>> [round(12 * kink_weight(t), 9) for t in (0.5, 1.0, 1.5, 2.5, -0.5)]
    [2.5, -1.0, -0.5, 0.0, -2.5]
    """
    outer, inner = (max(k - t, 0.0) - max(-k - t, 0.0) for k in (2.0, 1.0))
    return (8 * inner - outer) / 12 - (1.0 if t < 0 else 0.0)


def unrolled(params: Params, X: FloatArray, y: FloatArray, found: Gradients) -> float:
    """Return the largest relative error against back-propagation through 600 layers."""
    # Only this check needs PyTorch.
    import torch

    W, A, b = (torch.tensor(a, requires_grad=True) for a in (params.W, params.A, params.b))
    Phi = torch.relu(torch.tensor(X) @ W)
    Z = torch.zeros_like(Phi)
    for _ in range(600):
        Z = torch.relu(params.gamma * Z @ A + Phi)
    (0.5 * ((Z @ b - torch.tensor(y)) ** 2).sum()).backward()  # type: ignore[no-untyped-call]
    worst = 0.0
    for mine, other in ((found.W, W), (found.A, A), (found.b, b)):
        assert other.grad is not None
        exact = other.grad.numpy()
        worst = max(worst, float(np.abs(mine - exact).max() / np.abs(exact).max()))
    return worst


def gram_error(params: Params, X: FloatArray) -> float:
    """Return the relative spectral error of H against the Jacobian's own Gram matrix."""
    rows = []
    for x in X:
        sample = x[None, :]
        prediction = deep.forward(params, sample, tol=1e-15).Z @ params.b
        # With residual 1 the gradient of the loss is that of the prediction.
        g = deep.gradients(params, sample, prediction - 1.0, tol=1e-15)
        rows.append(np.concatenate([g.W.ravel(), g.A.ravel(), g.b]))
    exact = np.array(rows) @ np.array(rows).T
    error = deep.gram(params, X, tol=1e-15).total - exact
    return float(np.linalg.norm(error, 2) / np.linalg.norm(exact, 2))


def _grid(sizes: tuple[tuple[int, int], ...], rates: tuple[float, ...]) -> list[dict[str, object]]:
    return [{"N": N, "m": m, "rate": rate} for N, m in sizes for rate in rates]


STUDY = Study(
    name="implicit_gradients",
    row=row,
    grids={
        "quick": _grid(((5, 10), (15, 30)), (0.3, 0.9)),
        "paper": _grid(((5, 10), (20, 40), (50, 100)), (0.1, 0.3, 0.6, 0.9)),
    },
    seeds={"quick": (0, 1), "paper": tuple(range(10))},
    claims=("C2",),
    rtol=1.0,
    atol=1e-8,
    unchecked=("margin",),
)
