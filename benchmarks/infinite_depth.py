"""Forward and adjoint at infinite depth against a floor: ``python -m benchmarks.infinite_depth``.

Floor: the products with A that were needed, each timed as one NumPy product of the same shape. Two
things are timed against it, in turn within each round, smallest times over the rounds: the two
solves from zero with all that they need (the norm of A, the features relu(X W)), and the gradients,
whose floor also holds the products that make the features and the gradients. The aim for the solves
is a ratio of 1.5.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.run import interleaved, machine, write
from implicitnn import infinite_depth as deep
from implicitnn._infinite_depth.gradients import solve_both
from implicitnn._infinite_depth.solve import Workspace

RESULTS = (
    Path(__file__).resolve().parents[1] / "data" / "results" / "benchmarks_infinite_depth.json"
)
N, M, D = 1000, 2000, 784
TOL = 1e-8
LIMIT = 10_000
GAMMAS = (0.1, 0.5, 0.9)


def problem(gamma: float) -> tuple[deep.Params, np.ndarray, np.ndarray]:
    """Return a network with ||A|| near 1, samples of norm one, and labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D))
    X /= np.linalg.norm(X, axis=1)[:, None]
    A = rng.standard_normal((M, M)) / (2 * np.sqrt(M))
    params = deep.Params(rng.standard_normal((D, M)) / np.sqrt(M), A, rng.standard_normal(M), gamma)
    return params, X, rng.choice([-1.0, 1.0], N)


def case(gamma: float, rounds: int) -> dict[str, Any]:
    """Return the ratios to the floors and the number of products."""
    params, X, y = problem(gamma)
    Z, out = np.random.default_rng(1).random((N, M)), np.empty((N, M))
    found = deep.gradients(params, X, y, tol=TOL)
    products = found.forward.iterations + found.adjoint.iterations

    def solves() -> None:
        fresh = deep.Params(params.W, params.A, params.b, gamma)  # its norm is not known yet
        solve_both(Workspace(N, M), fresh, X, TOL, LIMIT)

    def all_gradients() -> None:
        deep.gradients(deep.Params(params.W, params.A, params.b, gamma), X, y, tol=TOL)

    times = interleaved(
        {
            "product": lambda: np.matmul(Z, params.A, out=out),
            "solves": solves,
            "gradients": all_gradients,
            # features, and the gradients of W and A
            "rest": lambda: (X @ params.W, X.T @ Z, Z.T @ Z),
        },
        rounds,
    )
    wall = {name: time["wall"] for name, time in times.items()}
    floor = products * wall["product"]
    return {
        "gamma": gamma,
        "N": N,
        "m": M,
        "products": products,
        "wall": wall,
        "ratio_solves": wall["solves"] / floor,
        "ratio_gradients": wall["gradients"] / (floor + wall["rest"]),
    }


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each gamma, write the results."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.infinite_depth", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    facts, rows = machine(), []
    for gamma in GAMMAS:
        row = case(gamma, options.rounds)
        rows.append(row)
        print(
            f"gamma {gamma:.1f}: {row['products']:3d} products, solves {row['ratio_solves']:.2f} "
            f"floors, gradients {row['ratio_gradients']:.2f} floors",
            flush=True,
        )
    facts["load_after"] = os.getloadavg()[0]
    write(options.output, {"machine": facts, "rows": rows})


if __name__ == "__main__":
    main()
