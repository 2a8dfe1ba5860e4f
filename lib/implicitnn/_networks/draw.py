"""Weights from N(0, 1), in the order that the simulators of `simulate` draw them."""

from __future__ import annotations

import numpy as np
import torch

BLOCK = 1 << 24


def normal(rng: np.random.Generator, rows: int, columns: int, dtype: torch.dtype) -> torch.Tensor:
    """A (rows, columns) tensor of N(0, 1), drawn in float64 block by block.

    The numbers are those of one call ``rng.standard_normal((rows, columns))``, so a network in
    float32 is the rounded twin of the one in float64; only a block of it exists in float64.
    """
    out = torch.empty((rows, columns), dtype=dtype, device="cpu")
    view, size = out.numpy(), max(1, BLOCK // columns)
    for start in range(0, rows, size):
        part = view[start : start + size]
        part[...] = rng.standard_normal(part.shape)
    return out
