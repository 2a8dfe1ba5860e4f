"""Tiles of results, and their way into the matrix: rows as they are, columns transposed."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from implicitnn._kernels.simd import BLOCK, Code, integer, plain, pointers

# rows of a panel: two tiles of results then nearly fit the first-level cache
ROWS = 32
# row length of a tile: a little more than BLOCK, so that columns do not fall on one cache set
WIDTH = BLOCK + 8
SIDE = 8


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def store_tile(
    typingctx: Any, tile: Any, start: Any, out: Any, at: Any, mirror: Any, columns: Any, both: Any
) -> Any:
    """Copy a tile (ROWS, BLOCK) to the flat ``out[at:]``, of rows ``columns`` long.

    If ``both``, its transpose goes to ``out[mirror:]``.
    """
    kinds = plain(tile, start, out, at, mirror, columns, both)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit_store(builder, *pointers(context, builder, kinds, args))
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _emit_store(
    builder: Any, tile: Any, start: Any, out: Any, at: Any, mirror: Any, columns: Any, both: Any
) -> None:
    code = Code(builder, SIDE)
    zero, side = integer(0), integer(SIDE)

    def place(base: Any, row: Any, column: Any) -> Any:
        return builder.add(base, builder.add(builder.mul(row, columns), column))

    with (
        cgutils.for_range_slice(builder, zero, integer(BLOCK), side, inc=True) as (j, _),
        cgutils.for_range_slice(builder, zero, integer(ROWS), side, inc=True) as (i, _),
    ):
        rows = []
        for k in range(SIDE):
            row = builder.add(i, integer(k))
            source = builder.add(builder.mul(row, integer(WIDTH)), j)
            rows.append(code.load(tile, builder.add(start, source)))
            code.store(rows[k], out, place(at, row, j))
        with builder.if_then(both):
            for k, value in enumerate(transposed(builder, rows)):
                code.store(value, out, place(mirror, builder.add(j, integer(k)), i))


def transposed(builder: Any, rows: list[Any]) -> list[Any]:
    """The columns of a square of vectors: blocks off the diagonal change places at every scale."""
    side, rows = len(rows), list(rows)
    index = ir.VectorType(ir.IntType(32), side)
    step = 1
    while step < side:
        low = [c if not c & step else side + c - step for c in range(side)]
        high = [c + step if not c & step else side + c for c in range(side)]
        for k in range(side):
            if not k & step:
                a, b = rows[k], rows[k + step]
                rows[k] = builder.shuffle_vector(a, b, ir.Constant(index, low))
                rows[k + step] = builder.shuffle_vector(a, b, ir.Constant(index, high))
        step *= 2
    return rows
