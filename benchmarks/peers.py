"""neural-tangents, unrolled 16 layers, on the uncentred ReLU kernel: in its own environment.

Run by ``make bench-peers`` with the packages of requirements-peers.txt. Needs nothing from this
library, because the peer's pins differ from its own. One layer of the unrolled network maps a
kernel K to sigma_a2 T(K) + sigma_b2 X X^T, T the arc-cosine map; its CK is the last T(K).
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import jax
import numpy as np
from neural_tangents import stax

jax.config.update("jax_enable_x64", True)
DEPTH = 16
P = 784
RESULTS = Path(__file__).resolve().parents[1] / "data" / "results" / "benchmarks_peers.json"


def unrolled(sigma_a2: float, sigma_b2: float):
    """Sum of a recurrent branch and the input, DEPTH times, then the nonlinearity."""
    entry = stax.Dense(1, W_std=(sigma_b2 * P) ** 0.5)
    block = entry
    for _ in range(DEPTH):
        branch = stax.serial(block, stax.Relu(), stax.Dense(1, W_std=sigma_a2**0.5))
        block = stax.serial(stax.FanOut(2), stax.parallel(branch, entry), stax.FanInSum())
    return stax.serial(block, stax.Relu())[2]


def compiled(sigma_a2: float):
    """Both kernels of the unrolled network as one jitted function of the samples."""
    apply = unrolled(sigma_a2, 1.0 - sigma_a2)
    return jax.jit(lambda x: apply(x, None, ("nngp", "ntk")))


def mixture(n: int) -> np.ndarray:
    """Same samples as the other benchmarks, without the scaling by p (NT divides by it)."""
    Z = np.random.default_rng(0).standard_normal((n, P))
    half = n // 2
    Z[half:] *= np.sqrt(1.0 + 8.0 / np.sqrt(P))
    Z[:half, 0] += 8.0
    Z[half:, 8] += 8.0
    return Z / np.sqrt(P)


def exact(X: np.ndarray, sigma_a2: float) -> np.ndarray:
    """The limit, by plain iteration."""
    S = X @ X.T
    L = (1.0 - sigma_a2) * S
    for _ in range(400):
        root = np.sqrt(np.diag(L))
        size = np.outer(root, root)
        rho = np.clip(L / size, -1.0, 1.0)
        G = size * (np.sqrt(1 - rho**2) + (np.pi - np.arccos(rho)) * rho) / (2 * np.pi)
        L = sigma_a2 * G + (1.0 - sigma_a2) * S
    return G


def main() -> None:
    """Time the peer beside the floor and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows = []
    for n in options.sizes:
        X = mixture(n)
        out = np.empty((n, n))
        for sigma_a2 in (0.2, 0.9):
            kernel = compiled(sigma_a2)
            start = time.perf_counter()
            value = kernel(X)
            value.ntk.block_until_ready()
            first = time.perf_counter() - start
            floors, times = [], []
            for _ in range(options.rounds):
                start = time.perf_counter()
                np.matmul(X, X.T, out=out)
                np.multiply(out, 1.0000001, out=out)
                floors.append(time.perf_counter() - start)
                start = time.perf_counter()
                kernel(X).ntk.block_until_ready()
                times.append(time.perf_counter() - start)
            G = exact(X, sigma_a2)
            d = np.sqrt(np.diag(G))
            error = float(np.abs((np.asarray(value.nngp) - G) / np.outer(d, d)).max())
            rows.append(
                {
                    "contender": f"neural-tangents unrolled {DEPTH} layers, uncentred ReLU",
                    "n": n,
                    "p": P,
                    "sigma_a2": sigma_a2,
                    "wall": min(times),
                    "first_call": first,
                    "ratio": min(times) / min(floors),
                    "error_ck": error,
                }
            )
            print(rows[-1], flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
