"""Compile every pass once, and say how long it took."""

from __future__ import annotations

import time
from functools import cache

import numpy as np

from implicitnn._kernels import exponential as _exponential
from implicitnn._kernels import passes as _passes
from implicitnn._kernels import piecewise as _piecewise
from implicitnn._kernels.simd import BLOCK, CONSTANTS


@cache
def warm_up() -> float:
    """Compile (or load from the cache) every pass; returns the seconds it took, once a process."""
    start = time.perf_counter()
    n = 2
    square, vector, rows = np.eye(n), np.ones(n), np.ones((n, 4))
    basis, columns = np.ones((1, BLOCK)), np.ones((1, 4 * BLOCK))
    _passes.scan(square, vector, vector, 0, n, True, np.empty(2))
    index = np.zeros((2, n), dtype=np.int64)
    if _passes.count_flagged(square, vector, vector, 0, n, -2.0, 2.0, True) == 0:
        _passes.list_flagged(square, vector, vector, 0, n, -2.0, 2.0, True, index, vector)
    _passes.distances(square, square, vector, vector, index)
    _passes.products(square, square, index)
    ranks, both = np.ones(1, dtype=np.int64), (square.copy(), square.copy())
    _passes.table_panel(*both, 0, n, basis, columns, rows, rows, ranks, True)
    constants, sizes = np.ones(len(CONSTANTS)), np.ones(3, dtype=np.int64)
    ends = np.zeros((2, n * n), dtype=np.int64)
    _passes.homogeneous_panel(*both, 0, n, columns, rows, constants, np.ones(6), sizes, True, ends)
    _passes.mehler(square, square, square)
    _passes.mehler_gap(square, square, vector)
    _piecewise.moments(np.ones(4), vector, vector, vector, vector.copy(), vector.copy())
    _exponential.moments(vector, vector, vector, vector.copy(), vector.copy())
    return time.perf_counter() - start
