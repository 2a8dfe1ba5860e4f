"""Compiled passes over the kernel matrix: the scan, and the fused table evaluations.

Rows are taken in panels of ROWS, columns in blocks of BLOCK. For a symmetric kernel only blocks on
and above the diagonal are evaluated; each is written twice while it is in cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from implicitnn._kernels.simd import BLOCK, LANES, extremes, homogeneous_row, table_row
from implicitnn._kernels.tiles import ROWS, WIDTH, store_tile

FloatArray = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Compile with the cache on, the interpreter lock released, and no reordering of sums."""
    wrapper: Any = njit(nogil=True, cache=True, fastmath={"contract"}, error_model="numpy")
    result: F = wrapper(function)
    return result


@compiled
def write_tile(
    out: FloatArray,
    tile: FloatArray,
    start: int,
    i0: int,
    i1: int,
    j0: int,
    j1: int,
    symmetric: bool,
) -> None:
    """Copy a tile of results into ``out``, and its transpose when the kernel is symmetric."""
    columns = out.shape[1]
    apart = j0 >= i1
    if i1 - i0 == ROWS and j1 - j0 == BLOCK and (apart or not symmetric):
        store_tile(
            tile,
            start,
            out.reshape(-1),
            i0 * columns + j0,
            j0 * columns + i0,
            columns,
            symmetric,
        )
        return
    for i in range(i0, i1):
        at = start + (i - i0) * WIDTH - j0
        if symmetric:
            for j in range(max(i, j0), j1):
                out[i, j] = tile[at + j]
                out[j, i] = tile[at + j]
        else:
            for j in range(j0, j1):
                out[i, j] = tile[at + j]


@compiled
def scan(
    gram: FloatArray,
    inv1: FloatArray,
    inv2: FloatArray,
    i0: int,
    i1: int,
    symmetric: bool,
    result: FloatArray,
) -> None:
    """Smallest and largest cosine off the diagonal, into ``result``.

    Rows and columns with inv = 0 are passed over. A largest value of -2 means there is none.
    """
    columns, flat = gram.shape[1], gram.reshape(-1)
    found = np.empty(2 * LANES)
    found[:LANES], found[LANES:] = 2.0, -2.0
    low, top = 2.0, -2.0
    for i in range(i0, i1):
        scale = inv1[i]
        if scale == 0.0:
            continue
        start = i + 1 if symmetric else 0
        runs = (columns - start) // LANES
        extremes(flat, i * columns + start, inv2, start, runs, scale, found)
        for j in range(start + runs * LANES, columns):
            if inv2[j] > 0.0:
                y = gram[i, j] * (scale * inv2[j])
                low, top = min(low, y), max(top, y)
    result[0], result[1] = min(low, found[:LANES].min()), max(top, found[LANES:].max())


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
def _padded(source: FloatArray, i0: int, i1: int, j0: int, j1: int, buffer: FloatArray) -> None:
    """Copy a block that is less than BLOCK wide into a buffer of rows that are BLOCK long."""
    for i in range(i0, i1):
        for j in range(j0, j1):
            buffer[(i - i0) * BLOCK + j - j0] = source[i, j]


@compiled
def _table_block(
    source: FloatArray,
    at: int,
    step: int,
    rows: FloatArray,
    column: FloatArray,
    basis: FloatArray,
    coefficients: FloatArray,
    ranks: NDArray[np.int64],
    tile: FloatArray,
) -> None:
    for m in range(rows.shape[0]):
        place = m * WIDTH
        table_row(
            source,
            at + m * step,
            rows[m],
            column,
            basis,
            coefficients[m],
            ranks,
            ranks.size,
            tile,
            place,
            place + ROWS * WIDTH,
        )


@compiled
def table_panel(
    first: FloatArray,
    second: FloatArray,
    i0: int,
    i1: int,
    basis: FloatArray,
    columns: FloatArray,
    rows: FloatArray,
    coefficients: FloatArray,
    ranks: NDArray[np.int64],
    symmetric: bool,
) -> None:
    """Evaluate both tables on a panel of rows; ``first`` holds the inner products before.

    ``basis`` (blocks, rank * BLOCK) and ``columns`` (blocks, 3 * BLOCK) belong to the columns,
    ``rows`` (n, 4) and ``coefficients`` (panel, 2 * sum of ranks) to the rows: see
    :func:`implicitnn._kernels.simd.table_row`.
    """
    width = first.shape[1]
    flat, part = first.reshape(-1), rows[i0:i1]
    buffer, tile = np.zeros(ROWS * BLOCK), np.empty(2 * ROWS * WIDTH)
    for j0 in range(i0 // BLOCK * BLOCK if symmetric else 0, width, BLOCK):
        j1, block = min(width, j0 + BLOCK), j0 // BLOCK
        source, at, step = flat, i0 * width + j0, width
        if j1 - j0 < BLOCK:
            _padded(first, i0, i1, j0, j1, buffer)
            source, at, step = buffer, 0, BLOCK
        _table_block(
            source, at, step, part, columns[block], basis[block], coefficients, ranks, tile
        )
        write_tile(first, tile, 0, i0, i1, j0, j1, symmetric)
        write_tile(second, tile, ROWS * WIDTH, i0, i1, j0, j1, symmetric)


@compiled
def _homogeneous_block(
    source: FloatArray,
    at: int,
    step: int,
    rows: FloatArray,
    column: FloatArray,
    constants: FloatArray,
    powers: FloatArray,
    sizes: NDArray[np.int64],
    tile: FloatArray,
    ends: NDArray[np.bool_],
) -> bool:
    """Whether any row has entries near an end of the table; ``ends`` tells which."""
    found = False
    for m in range(rows.shape[0]):
        place = m * WIDTH
        ends[m] = homogeneous_row(
            source,
            at + m * step,
            rows[m],
            column,
            constants,
            powers,
            sizes,
            tile,
            place,
            place + ROWS * WIDTH,
        )
        found |= ends[m]
    return found


@compiled
def homogeneous_panel(
    first: FloatArray,
    second: FloatArray,
    i0: int,
    i1: int,
    columns: FloatArray,
    rows: FloatArray,
    constants: FloatArray,
    powers: FloatArray,
    sizes: NDArray[np.int64],
    symmetric: bool,
    index: NDArray[np.int64],
) -> int:
    """Evaluate the one-dimensional table of a positively homogeneous activation.

    ``first`` holds the inner products before. Entries near either end of the table are listed in
    ``index`` (2, room), to be done with more care; returns their number. ``columns``
    (blocks, 4 * BLOCK), ``rows`` (n, 4), ``constants``, ``powers``, ``sizes``: see
    :func:`implicitnn._kernels.simd.homogeneous_row`.
    """
    width, found = first.shape[1], 0
    flat, part, ends = first.reshape(-1), rows[i0:i1], np.zeros(ROWS, dtype=np.bool_)
    buffer, tile = np.zeros(ROWS * BLOCK), np.empty(2 * ROWS * WIDTH)
    for j0 in range(i0 // BLOCK * BLOCK if symmetric else 0, width, BLOCK):
        j1, column = min(width, j0 + BLOCK), columns[j0 // BLOCK]
        source, at, step = flat, i0 * width + j0, width
        if j1 - j0 < BLOCK:
            _padded(first, i0, i1, j0, j1, buffer)
            source, at, step = buffer, 0, BLOCK
        if _homogeneous_block(source, at, step, part, column, constants, powers, sizes, tile, ends):
            for i in range(i0, i1):
                if ends[i - i0]:
                    found = _list_ends(
                        first, rows[i], column, constants, i, j0, j1, symmetric, index, found
                    )
        write_tile(first, tile, 0, i0, i1, j0, j1, symmetric)
        write_tile(second, tile, ROWS * WIDTH, i0, i1, j0, j1, symmetric)
    return found


@compiled
def _list_ends(
    gram: FloatArray,
    row: FloatArray,
    column: FloatArray,
    constants: FloatArray,
    i: int,
    j0: int,
    j1: int,
    symmetric: bool,
    index: NDArray[np.int64],
    found: int,
) -> int:
    """Add the entries of one row and block whose gap is near an end of its range."""
    b, r_max, total, edge, last = (
        constants[0],
        constants[1],
        constants[2],
        constants[3],
        constants[4],
    )
    for j in range(max(j0, i + 1) if symmetric else j0, j1):
        m = j - j0
        drive = b * gram[i, j] + (row[0] + column[m])
        gap = min(total, max(0.0, r_max - drive * (row[1] * column[BLOCK + m])))
        if gap < edge or gap > last:
            index[0, found], index[1, found] = i, j
            found += 1
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
