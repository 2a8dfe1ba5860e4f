"""Kernels of explicit networks by neural-tangents: run in the peer's own environment.

``python peer_kernels.py OUT.npz`` writes the samples and, for each activation and depth, the CK of
the last layer and the NTK over all weights, the readout included. Nothing of this library is
imported, because the peer's pins differ from its own.
"""

from __future__ import annotations

import sys

import jax
import numpy as np
from neural_tangents import stax

jax.config.update("jax_enable_x64", True)
SAMPLES, P = 24, 60
DEPTHS = (1, 2, 3)
LAYERS = {
    "relu": stax.Relu,
    "leaky_relu(0.2)": lambda: stax.LeakyRelu(0.2),
    "erf": stax.Erf,
    "gelu": lambda: stax.Gelu(approximate=False),
}


def samples() -> np.ndarray:
    """Rows of unequal norms, one nearly a copy of another, one opposite to another."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((SAMPLES, P)) / np.sqrt(P)
    X *= np.exp(rng.uniform(-1.5, 1.5, (SAMPLES, 1)))
    X[1] = X[0] + 1e-4 * rng.standard_normal(P)
    X[3] = -2.0 * X[2]
    return X


def network(layer, depth: int):
    """The kernel function of depth layers and a readout; the first matrix sees x, not x/sqrt(p)."""
    parts = []
    for number in range(depth):
        parts += [stax.Dense(1, W_std=P**0.5 if number == 0 else 1.0), layer()]
    return stax.serial(*parts, stax.Dense(1, W_std=1.0))[2]


def main() -> None:
    """Evaluate every case and write one archive."""
    X = samples()
    found = {"X": X}
    for name, layer in LAYERS.items():
        for depth in DEPTHS:
            kernels = network(layer, depth)(X, None, ("nngp", "ntk"))
            found[f"{name}|{depth}|ck"] = np.asarray(kernels.nngp)
            found[f"{name}|{depth}|ntk"] = np.asarray(kernels.ntk)
    np.savez(sys.argv[1], **found)


if __name__ == "__main__":
    main()
