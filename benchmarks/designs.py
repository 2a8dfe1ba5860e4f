"""Processor time of the design: a match that nothing has been cached for, and a whole map.

``python -m benchmarks.designs`` prints both; the aims are 50 ms for a match and, for a map of
100 x 100 networks on two cores, one minute.
"""

from __future__ import annotations

import time

import numpy as np

from implicitnn import activations, design
from implicitnn.specs import DEQ

FAMILIES = ("leaky_relu", "cubic_hermite")
SIDE = 100


def match_seconds(name: str, family: str, sigma_a2: float) -> float:
    """One call, for a network that was not designed before in this process."""
    deq = DEQ(activations.get(name), sigma_a2)
    start = time.process_time()
    design.match(deq, family)
    return time.process_time() - start


def map_seconds(family: str, side: int = SIDE) -> float:
    """Leaky ReLU slopes against sigma_a2."""
    slopes = (activations.leaky_relu(float(s)) for s in np.linspace(-0.9, 0.9, side))
    grid = design.Grid(tuple(slopes), tuple(np.linspace(0.01, 0.99, side)))
    start = time.process_time()
    design.reachable(family, grid)
    return time.process_time() - start


def main() -> None:
    """Print a line for each case."""
    match_seconds("gelu", "auto", 0.31)
    for name in ("relu", "tanh", "swish", "elu"):
        for family in ("auto", *FAMILIES):
            times = [1e3 * match_seconds(name, family, s) for s in (0.22, 0.33, 0.44)]
            print(f"match {name:6s} {family:14s} {min(times):6.1f} to {max(times):6.1f} ms")
    for family in FAMILIES:
        print(f"map {SIDE} x {SIDE}, {family:14s} {map_seconds(family):6.1f} s")


if __name__ == "__main__":
    main()
