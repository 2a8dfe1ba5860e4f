"""Forward and adjoint at infinite depth against a floor: ``python -m benchmarks.infinite_depth``.

Floor: the products with A that were needed, each timed as one NumPy product of the same shape. Both
run in turn within each round; smallest times over the rounds. The aim is a ratio of 1.5.
"""

from __future__ import annotations

import numpy as np

from benchmarks.run import interleaved, machine
from implicitnn import infinite_depth as deep

N, M, D = 1000, 2000, 784
ROUNDS = 3


def case(gamma: float) -> tuple[float, int]:
    """Return the ratio to the floor and the number of products."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    X /= np.linalg.norm(X, axis=1)[:, None]
    A = rng.standard_normal((M, M)) / (2 * np.sqrt(M))
    params = deep.Params(rng.standard_normal((D, M)) / np.sqrt(M), A, rng.standard_normal(M), gamma)
    y = rng.choice([-1.0, 1.0], N)
    Z, out = rng.random((N, M)), np.empty((N, M))
    found = deep.gradients(params, X, y, tol=1e-8)
    products = found.forward.iterations + found.adjoint.iterations
    times = interleaved(
        {
            "gradients": lambda: deep.gradients(params, X, y, tol=1e-8),
            "product": lambda: np.matmul(Z, A, out=out),
            # features, and the gradients of W, A and b
            "rest": lambda: (X @ params.W, X.T @ Z, Z.T @ Z),
        },
        ROUNDS,
    )
    wall = {name: time["wall"] for name, time in times.items()}
    return wall["gradients"] / (products * wall["product"] + wall["rest"]), products


def main() -> None:
    """Print a line for each gamma."""
    print(machine())
    for gamma in (0.1, 0.5, 0.9):
        ratio, products = case(gamma)
        print(f"gamma {gamma:.1f}: {products:3d} products, {ratio:.2f} floors")


if __name__ == "__main__":
    main()
