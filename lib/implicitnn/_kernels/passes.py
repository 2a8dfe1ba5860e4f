"""Compiled passes over the kernel matrix: the scan, and the fused table evaluations.

Rows are taken in panels of ROWS, columns in blocks of BLOCK. For a symmetric kernel only blocks on
and above the diagonal are evaluated; each is written twice while it is in cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from implicitnn._kernels.simd import BLOCK, clenshaw_pair, horner_pair

FloatArray = NDArray[np.float64]
# rows of a panel: two tiles of results then fit the first-level cache
ROWS = 32
# row length of a tile: a little more than BLOCK, so that columns do not fall on one cache set
WIDTH = BLOCK + 4
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
    apart = j0 >= i1
    if apart or not symmetric:
        for i in range(i0, i1):
            for j in range(j0, j1):
                out[i, j] = tile[i - i0, j - j0]
    if apart and symmetric:
        for j in range(j0, j1):
            for i in range(i0, i1):
                out[j, i] = tile[i - i0, j - j0]
    elif symmetric:
        for i in range(i0, i1):
            for j in range(max(i, j0), j1):
                out[i, j] = tile[i - i0, j - j0]
                out[j, i] = tile[i - i0, j - j0]


@compiled
def scan(
    gram: FloatArray,
    inv1: FloatArray,
    inv2: FloatArray,
    i0: int,
    i1: int,
    cut: float,
    symmetric: bool,
    result: FloatArray,
) -> None:
    """Smallest and largest cosine below ``cut`` off the diagonal, and how many reach ``cut``.

    Rows and columns with inv = 0 are passed over. A largest value of -2 means there is none.
    """
    low, top, count = 2.0, -2.0, 0
    columns = gram.shape[1]
    for i in range(i0, i1):
        scale = inv1[i]
        if scale == 0.0:
            continue
        for j in range(i + 1 if symmetric else 0, columns):
            y = gram[i, j] * (scale * inv2[j])
            used = inv2[j] > 0.0
            below = y < cut
            low = min(low, y if used and below else 2.0)
            top = max(top, y if used and below else -2.0)
            count += 0 if below else 1
    result[0], result[1], result[2] = low, top, count


@compiled
def count_flagged(
    gram: FloatArray,
    inv1: FloatArray,
    inv2: FloatArray,
    i0: int,
    i1: int,
    low: float,
    high: float,
    symmetric: bool,
) -> int:
    """How many entries of a panel the table does not cover: inv = 0, or cos outside [low, high]."""
    count = 0
    for i in range(i0, i1):
        for j in range(i + 1 if symmetric else 0, gram.shape[1]):
            scale = inv1[i] * inv2[j]
            y = gram[i, j] * scale
            count += 1 if scale == 0.0 or y < low or y > high else 0
    return count


@compiled
def list_flagged(
    gram: FloatArray,
    inv1: FloatArray,
    inv2: FloatArray,
    i0: int,
    i1: int,
    low: float,
    high: float,
    symmetric: bool,
    index: NDArray[np.int64],
    inner: FloatArray,
) -> None:
    """Positions (2, count) of those entries, and their inner products."""
    count = 0
    for i in range(i0, i1):
        for j in range(i + 1 if symmetric else 0, gram.shape[1]):
            scale = inv1[i] * inv2[j]
            y = gram[i, j] * scale
            if scale == 0.0 or y < low or y > high:
                index[0, count], index[1, count] = i, j
                inner[count] = gram[i, j]
                count += 1


@compiled
def distances(
    left: FloatArray,
    right: FloatArray,
    scale1: FloatArray,
    scale2: FloatArray,
    index: NDArray[np.int64],
) -> FloatArray:
    """|a x_i - b y_j|^2 for the listed pairs, from the differences themselves."""
    result = np.empty(index.shape[1])
    for m in range(index.shape[1]):
        i, j = index[0, m], index[1, m]
        total = 0.0
        for k in range(left.shape[1]):
            d = left[i, k] * scale1[i] - right[j, k] * scale2[j]
            total += d * d
        result[m] = total
    return result


@compiled
def products(left: FloatArray, right: FloatArray, index: NDArray[np.int64]) -> FloatArray:
    """x_i . y_j for the listed pairs."""
    result = np.empty(index.shape[1])
    for m in range(index.shape[1]):
        i, j = index[0, m], index[1, m]
        total = 0.0
        for k in range(left.shape[1]):
            total += left[i, k] * right[j, k]
        result[m] = total
    return result


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

    y = stretch (cos - middle); ``basis`` (blocks, rank * BLOCK); ``rows``
    (panel, degree * rank * 2); ``inv`` 1/|x|; ``scale`` (2, n): the size of the
    two kernels.
    """
    columns = gram.shape[1]
    rank = basis.shape[1] // BLOCK
    degree = rows.shape[1] // (2 * rank)
    work = np.zeros(3 * BLOCK)
    tile1, tile2 = np.empty((ROWS, WIDTH)), np.empty((ROWS, WIDTH))
    for j0 in range(i0 // BLOCK * BLOCK if symmetric else 0, columns, BLOCK):
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
def _two_sided(
    work: FloatArray, gap: FloatArray, near: FloatArray, far: FloatArray, total: float
) -> None:
    """Both polynomials at gaps t^2 in [0, total]: in t below half, in its mirror above."""
    limit = 0.5 * total
    stretch = 2.0 / math.sqrt(limit)
    above, below = 0, 0
    for j in range(BLOCK):
        far_side = 1 if gap[j] > limit else 0
        above += far_side
        below += 1 - far_side
        work[j] = math.sqrt(min(limit, gap[j])) * stretch - 1.0
    if below:
        horner_pair(work, near, near.size // 2)
    if above:
        other = np.empty(3 * BLOCK)
        for j in range(BLOCK):
            other[j] = math.sqrt(min(limit, total - gap[j])) * stretch - 1.0
        horner_pair(other, far, far.size // 2)
        for j in range(BLOCK):
            if gap[j] > limit:
                work[BLOCK + j], work[2 * BLOCK + j] = other[BLOCK + j], other[2 * BLOCK + j]


@compiled
def homogeneous_panel(
    gram: FloatArray,
    first: FloatArray,
    second: FloatArray,
    i0: int,
    i1: int,
    near: FloatArray,
    far: FloatArray,
    constants: FloatArray,
    data1: FloatArray,
    data2: FloatArray,
    everything: bool,
    symmetric: bool,
    edge: float,
    index: NDArray[np.int64],
) -> int:
    r"""Evaluate the one-dimensional table of a positively homogeneous activation.

    Entries within ``edge`` of either end of the range of t^2 are listed in ``index`` (2, room), to
    be done with more care; returns their number.

    ``near``, ``far`` (degree * 2): k and D/(1 - sa2 D) as polynomials in t and in its mirror;
    ``constants`` (r_max, sb2, sc2, sa2, largest t^2); ``data`` rows: sqrt(v), 1/sqrt(v), half of
    sc2 + sa2 (c^2 - 2 c m), c^2/2 - c m.
    """
    columns = gram.shape[1]
    work, gap = np.zeros(3 * BLOCK), np.full(BLOCK, 0.5 * constants[4])
    tile1, tile2 = np.empty((ROWS, WIDTH)), np.empty((ROWS, WIDTH))
    r_max, sb2, sc2, sa2, total = (
        constants[0],
        constants[1],
        constants[2],
        constants[3],
        constants[4],
    )
    found, last = 0, total - edge
    for j0 in range(i0 // BLOCK * BLOCK if symmetric else 0, columns, BLOCK):
        j1 = min(columns, j0 + BLOCK)
        for i in range(i0, i1):
            for j in range(j0, j1):
                drive = sb2 * gram[i, j] + data1[2, i] + data2[2, j]
                gap[j - j0] = min(total, max(0.0, r_max - drive * (data1[1, i] * data2[1, j])))
            outside = 0
            for j in range(BLOCK):
                outside += (1 if gap[j] < edge else 0) + (1 if gap[j] > last else 0)
            if outside:
                for j in range(max(j0, i + 1) if symmetric else j0, j1):
                    if gap[j - j0] < edge or gap[j - j0] > last:
                        index[0, found], index[1, found] = i, j
                        found += 1
            _two_sided(work, gap, near, far, total)
            for j in range(j0, j1):
                k = work[BLOCK + j - j0]
                d = work[2 * BLOCK + j - j0]
                g = data1[0, i] * data2[0, j] * k + (data1[3, i] + data2[3, j])
                extra = (sb2 * gram[i, j] + sc2) * d if everything else 0.0
                tile1[i - i0, j - j0] = g
                tile2[i - i0, j - j0] = g + sa2 * d * g + extra
        write_block(first, tile1, i0, i1, j0, j1, symmetric)
        write_block(second, tile2, i0, i1, j0, j1, symmetric)
    return found


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


@compiled
def mehler_gap(
    left: FloatArray, right: FloatArray, gap: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Sums of (a - b)^2 / 2 + a b (1 - rho^k), and of k a b rho^(k-1), at rho = 1 - gap; (m,).

    The first is half of E(phi(u) - phi(v))^2; small gaps keep their digits.
    """
    pairs, terms = left.shape
    value, slope = np.zeros(pairs), np.zeros(pairs)
    for m in range(pairs):
        rho = 1.0 - gap[m]
        power, missing, total, rate = 1.0, 0.0, 0.0, 0.0
        for k in range(terms):
            c = left[m, k] * right[m, k]
            total += 0.5 * (left[m, k] - right[m, k]) ** 2 + c * missing
            # 1 - rho^(k+1) = (1 - rho^k) + rho^k gap
            missing += power * gap[m]
            if k + 1 < terms:
                rate += (k + 1) * left[m, k + 1] * right[m, k + 1] * power
            power *= rho
        value[m], slope[m] = total, rate
    return value, slope
