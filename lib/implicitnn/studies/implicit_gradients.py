"""Study of the implicit gradients against differences and automatic differentiation (claim C2)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from implicitnn import infinite_depth as deep
from implicitnn._validate import FloatArray
from implicitnn.infinite_depth import Gradients, Params
from implicitnn.sweeps import Study

STEP = 1e-4
DIRECTIONS = 12


def row(settings: Mapping[str, object], seed: int) -> dict[str, float]:
    """Return relative errors: finite differences, unrolled automatic differentiation, Gram.

    ``differences`` compares derivatives along 12 random directions with fourth-order differences
    of step 1e-4, divided by the norm of the gradient. ``unrolled`` is the largest error of an
    entry against back-propagation through 600 layers, relative to the largest entry of its block.
    ``gram`` is the error of H against the product of the Jacobian with its transpose. ``margin``
    is the smallest distance of a unit from its kink, in steps of the differences.
    """
    N, m, rate = (settings[key] for key in ("N", "m", "rate"))
    params, X, y = draw(int(str(N)), int(str(m)), float(str(rate)), seed)
    found = deep.gradients(params, X, y, tol=1e-15)
    return {
        "differences": differences(params, X, y, found, seed),
        "unrolled": unrolled(params, X, y, found),
        "gram": gram_error(params, X),
        "margin": margin(params, X),
    }


def draw(N: int, m: int, rate: float, seed: int) -> tuple[Params, FloatArray, FloatArray]:
    """Return Gaussian parameters with gamma ||A|| = rate, unit rows, labels of both signs.

    Draws with a unit nearer than one step to its kink are drawn again: there the loss has a kink
    within the stencil.
    """
    rng = np.random.default_rng([seed, N, m, int(1000 * rate)])
    while True:
        params, X, y = _draw(N, m, rate, rng)
        if margin(params, X) > 1.0:
            return params, X, y


def margin(params: Params, X: FloatArray) -> float:
    """Return the smallest distance of a unit from its kink, in steps of the differences."""
    solved = deep.forward(params, X, tol=1e-15)
    before = params.gamma * (solved.Z @ params.A) + solved.Phi
    return float(np.abs(before).min() / STEP)


def _draw(
    N: int, m: int, rate: float, rng: np.random.Generator
) -> tuple[Params, FloatArray, FloatArray]:
    d = N + 2
    X = rng.standard_normal((N, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    A = rng.standard_normal((m, m)) / np.sqrt(m)
    gamma = rate / deep.operator_norm(A)
    params = Params(rng.standard_normal((d, m)), A, rng.standard_normal(m) / np.sqrt(m), gamma)
    return params, X, rng.choice([-1.0, 1.0], N)


def loss(params: Params, X: FloatArray, y: FloatArray) -> float:
    """Return half the squared residual, with the fixed point to rounding."""
    residual = deep.forward(params, X, tol=1e-15).Z @ params.b - y
    return 0.5 * float(residual @ residual)


def differences(params: Params, X: FloatArray, y: FloatArray, found: Gradients, seed: int) -> float:
    """Return the largest error along random directions, relative to the gradient's norm."""
    rng = np.random.default_rng([seed, 1])
    blocks = (params.W, params.A, params.b)
    gradient = (found.W, found.A, found.b)
    scale = np.sqrt(sum(float((g**2).sum()) for g in gradient))
    worst = 0.0
    for _ in range(DIRECTIONS):
        along = [rng.standard_normal(a.shape) for a in blocks]
        size = np.sqrt(sum(float((a**2).sum()) for a in along))

        def at(t: float, along: list[FloatArray] = along, size: float = size) -> float:
            W, A, b = (a + (t / size) * v for a, v in zip(blocks, along, strict=True))
            return loss(Params(W, A, b, params.gamma), X, y)

        inner, outer = at(STEP) - at(-STEP), at(2 * STEP) - at(-2 * STEP)
        numeric = (8 * inner - outer) / (12 * STEP)
        exact = sum(float((g * v).sum()) for g, v in zip(gradient, along, strict=True)) / size
        worst = max(worst, abs(numeric - exact) / scale)
    return float(worst)


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
