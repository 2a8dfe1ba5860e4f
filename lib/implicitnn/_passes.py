"""Compiled passes over the kernel matrix: the scan, and the fused table evaluations.

Rows are taken in panels of BLOCK, columns in blocks of BLOCK. For a symmetric kernel only blocks on
and above the diagonal are evaluated; each is written twice while it is in cache.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ._simd import BLOCK, clenshaw_pair

FloatArray = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with the cache on, the interpreter lock released, and no reordering of sums."""
    wrapper: Any = njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
    result: F = wrapper(function)
    return result


@compiled
def write_block(
    out: FloatArray, tile: FloatArray, i0: int, i1: int, j0: int, j1: int, symmetric: bool
) -> None:
    """Copy a block of results into ``out``, and its transpose when the kernel is symmetric."""
    if not symmetric:
        for i in range(i0, i1):
            for j in range(j0, j1):
                out[i, j] = tile[i - i0, j - j0]
    elif j0 > i0:
        for i in range(i0, i1):
            for j in range(j0, j1):
                out[i, j] = tile[i - i0, j - j0]
        for j in range(j0, j1):
            for i in range(i0, i1):
                out[j, i] = tile[i - i0, j - j0]
    else:
        for i in range(i0, i1):
            for j in range(i, j1):
                out[i, j] = tile[i - i0, j - j0]
                out[j, i] = tile[i - i0, j - j0]


@compiled
def scan(gram: FloatArray, inv1: FloatArray, inv2: FloatArray, i0: int, i1: int, high: float,
         symmetric: bool, result: FloatArray) -> None:
    """Smallest and largest cosine not above ``high`` off the diagonal; number of those above it."""
    low, top, count = 2.0, -2.0, 0
    columns = gram.shape[1]
    for i in range(i0, i1):
        scale = inv1[i]
        for j in range(i + 1 if symmetric else 0, columns):
            y = gram[i, j] * scale * inv2[j]
            count += 1 if y > high else 0
            low = min(low, y)
            top = max(top, y if y <= high else -2.0)
    result[0], result[1], result[2] = low, top, count


@compiled
def table_panel(
    gram: FloatArray,
    first: FloatArray,
    second: FloatArray,
    i0: int,
    i1: int,
    basis: FloatArray,
    rows: FloatArray,
    middle: float,
    stretch: float,
    inv1: FloatArray,
    inv2: FloatArray,
    scale1: FloatArray,
    scale2: FloatArray,
    symmetric: bool,
) -> None:
    r"""Evaluate both tables on a panel of rows.

    y = stretch (cos - middle); ``basis`` (blocks, rank * BLOCK); ``rows`` (panel, degree * rank * 2);
    ``inv`` 1/|x|; ``scale`` (2, n) restores the size of the two kernels.
    """
    columns = gram.shape[1]
    rank = basis.shape[1] // BLOCK
    degree = rows.shape[1] // (2 * rank)
    work = np.zeros(3 * BLOCK)
    tile1, tile2 = np.empty((BLOCK, BLOCK)), np.empty((BLOCK, BLOCK))
    for j0 in range(i0 if symmetric else 0, columns, BLOCK):
        j1 = min(columns, j0 + BLOCK)
        t = basis[j0 // BLOCK]
        for i in range(i0, i1):
            for j in range(j0, j1):
                y = (gram[i, j] * inv1[i] * inv2[j] - middle) * stretch
                work[j - j0] = 2.0 * min(1.0, max(-1.0, y))
            clenshaw_pair(work, t, rows[i - i0], degree, rank)
            for j in range(j0, j1):
                tile1[i - i0, j - j0] = work[BLOCK + j - j0] * (scale1[0, i] * scale2[0, j])
                tile2[i - i0, j - j0] = work[2 * BLOCK + j - j0] * (scale1[1, i] * scale2[1, j])
        write_block(first, tile1, i0, i1, j0, j1, symmetric)
        write_block(second, tile2, i0, i1, j0, j1, symmetric)


@compiled
def homogeneous_panel(
    gram: FloatArray,
    first: FloatArray,
    second: FloatArray,
    i0: int,
    i1: int,
    series: FloatArray,
    limits: FloatArray,
    constants: FloatArray,
    data1: FloatArray,
    data2: FloatArray,
    everything: bool,
    symmetric: bool,
) -> None:
    r"""Evaluate the one-dimensional table of a positively homogeneous activation.

    ``series`` (degree * 2): k and D/(1 - sa2 D) in t; ``limits`` (middle, stretch, largest t^2);
    ``constants`` (r_max, sb2, sc2, sa2, c^2); ``data`` rows: sqrt(v), 1/sqrt(v), half of
    sc2 + sa2 (c^2 - 2 c m), c^2/2 - c m.
    """
    columns = gram.shape[1]
    degree = series.size // 2
    work, ones = np.zeros(3 * BLOCK), np.ones(BLOCK)
    tile1, tile2 = np.empty((BLOCK, BLOCK)), np.empty((BLOCK, BLOCK))
    r_max, sb2, sc2, sa2 = constants[0], constants[1], constants[2], constants[3]
    for j0 in range(i0 if symmetric else 0, columns, BLOCK):
        j1 = min(columns, j0 + BLOCK)
        for i in range(i0, i1):
            for j in range(j0, j1):
                drive = sb2 * gram[i, j] + data1[2, i] + data2[2, j]
                square = r_max - drive * (data1[1, i] * data2[1, j])
                t = math.sqrt(min(limits[2], max(0.0, square)))
                work[j - j0] = 2.0 * (t - limits[0]) * limits[1]
            clenshaw_pair(work, ones, series, degree, 1)
            for j in range(j0, j1):
                k = work[BLOCK + j - j0]
                d = work[2 * BLOCK + j - j0]
                g = data1[0, i] * data2[0, j] * k + (data1[3, i] + data2[3, j])
                extra = (sb2 * gram[i, j] + sc2) * d if everything else 0.0
                tile1[i - i0, j - j0] = g
                tile2[i - i0, j - j0] = g + sa2 * d * g + extra
        write_block(first, tile1, i0, i1, j0, j1, symmetric)
        write_block(second, tile2, i0, i1, j0, j1, symmetric)


@compiled
def mehler(left: FloatArray, right: FloatArray, rho: FloatArray) -> tuple[FloatArray, FloatArray]:
    r""":math:`\sum_k a_k b_k \rho^k` and its derivative in rho; (M, K), (M, K), (M, R)."""
    pairs, terms = left.shape
    value, slope = np.zeros(rho.shape), np.zeros(rho.shape)
    for m in range(pairs):
        for k in range(terms - 1, -1, -1):
            c = left[m, k] * right[m, k]
            for r in range(rho.shape[1]):
                slope[m, r] = slope[m, r] * rho[m, r] + value[m, r]
                value[m, r] = value[m, r] * rho[m, r] + c
    return value, slope


@cache
def warm_up() -> float:
    """Compile (or load from the cache) every pass; returns the seconds it took, once a process."""
    start = time.perf_counter()
    n = 2
    square, vector, pair = np.eye(n), np.ones(n), np.ones((4, n))
    limits, constants = np.array([0.5, 1.0, 1.0]), np.ones(5)
    basis, rows = np.ones((1, BLOCK)), np.ones((n, 4))
    scan(square, vector, vector, 0, n, 0.9, True, np.empty(3))
    table_panel(square, square.copy(), square.copy(), 0, n, basis, rows, 0.0, 1.0, vector, vector,
                pair, pair, True)
    homogeneous_panel(square, square.copy(), square.copy(), 0, n, np.ones(4), limits, constants,
                      pair, pair, False, True)
    mehler(square, square, square)
    return time.perf_counter() - start
