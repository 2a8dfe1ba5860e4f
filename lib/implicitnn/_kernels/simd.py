"""One vectorised inner loop, written as LLVM vector code.

Numba's own loops over several small buffers fall back to scalar code, because nothing tells LLVM
that the buffers do not overlap. The loop below fixes the vector width instead; LLVM splits it into
whatever registers the machine has. Only contraction into fused multiply-adds is allowed, so results
do not depend on how the work is cut into blocks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
BLOCK = 64
_DOUBLE = ir.DoubleType()
_INT = ir.IntType(64)
_INT32 = ir.IntType(32)
_VECTOR = ir.VectorType(_DOUBLE, LANES)
_FLAGS = ("contract",)


class _Code:
    """Emits loads, stores and arithmetic on vectors of LANES doubles."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def at(self, base: Any, offset: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(base, [offset]), _VECTOR.as_pointer())

    def load(self, base: Any, offset: Any) -> Any:
        value = self.builder.load(self.at(base, offset))
        value.align = 8
        return value

    def store(self, value: Any, base: Any, offset: Any) -> None:
        self.builder.store(value, self.at(base, offset)).align = 8

    def splat(self, scalar: Any) -> Any:
        empty = ir.Constant(_VECTOR, ir.Undefined)
        lanes = ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES)
        one = self.builder.insert_element(empty, scalar, ir.Constant(_INT32, 0))
        return self.builder.shuffle_vector(one, empty, lanes)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        product = self.builder.fmul(a, b, flags=_FLAGS)
        return self.builder.fadd(product, c, flags=_FLAGS)

    def multiply_sub(self, a: Any, b: Any, c: Any) -> Any:
        product = self.builder.fmul(a, b, flags=_FLAGS)
        return self.builder.fsub(product, c, flags=_FLAGS)


def _int(value: int) -> Any:
    return ir.Constant(_INT, value)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def clenshaw_pair(
    typingctx: Any, work: Any, basis: Any, coefficients: Any, rows: Any, rank: Any
) -> Any:
    r"""Two Chebyshev series at BLOCK arguments, with coefficients of low rank (Clenshaw).

    ``work`` holds three runs of BLOCK numbers: twice the argument y, then room for the results
    :math:`\sum_r T_r(y_j) \sum_q c_{rqk} B_{qj}`, k = 0, 1. ``basis`` is B, (rank, BLOCK) flat;
    ``coefficients`` is c, (rows, rank, 2) flat.
    """
    signature = types.void(work, basis, coefficients, rows, rank)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w, t, c = (
            context.make_array(signature.args[k])(context, builder, args[k]).data for k in range(3)
        )
        _emit(builder, w, t, c, args[3], args[4])
        return context.get_dummy_value()

    return signature, generate


def _emit(builder: Any, w: Any, t: Any, c: Any, rows: Any, rank: Any) -> None:
    code = _Code(builder)
    now = [cgutils.alloca_once(builder, _VECTOR) for _ in range(2)]
    last = [cgutils.alloca_once(builder, _VECTOR) for _ in range(2)]
    zero = ir.Constant(_VECTOR, [0.0] * LANES)
    top = builder.sub(rows, _int(1))
    with cgutils.for_range_slice(builder, _int(0), _int(BLOCK), _int(LANES), inc=True) as (lane, _):
        twice_y = code.load(w, lane)
        for slot in (*now, *last):
            builder.store(zero, slot)
        with cgutils.for_range_slice(builder, top, _int(-1), _int(-1), inc=False) as (r, _):
            is_last = builder.icmp_signed("==", r, _int(0))
            half = builder.select(is_last, ir.Constant(_DOUBLE, 0.5), ir.Constant(_DOUBLE, 1.0))
            factor = builder.fmul(twice_y, code.splat(half))
            for k in range(2):
                value = builder.load(now[k])
                step = code.multiply_sub(factor, value, builder.load(last[k]))
                builder.store(value, last[k])
                builder.store(step, now[k])
            row = builder.mul(builder.mul(r, rank), _int(2))
            with cgutils.for_range(builder, rank) as loop:
                column = code.load(t, builder.add(builder.mul(loop.index, _int(BLOCK)), lane))
                place = builder.add(row, builder.mul(loop.index, _int(2)))
                for k in range(2):
                    scalar = builder.load(builder.gep(c, [builder.add(place, _int(k))]))
                    total = code.multiply_add(code.splat(scalar), column, builder.load(now[k]))
                    builder.store(total, now[k])
        for k in range(2):
            code.store(builder.load(now[k]), w, builder.add(lane, _int(BLOCK * (k + 1))))


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def horner_pair(typingctx: Any, work: Any, coefficients: Any, rows: Any) -> Any:
    r"""Two polynomials at BLOCK arguments (Horner): :math:`\sum_r c_{rk} y_j^r`, k = 0, 1.

    ``work`` holds y, then room for the results; ``coefficients`` is c, (rows, 2) flat.
    """
    signature = types.void(work, coefficients, rows)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        w, c = (
            context.make_array(signature.args[k])(context, builder, args[k]).data for k in range(2)
        )
        _emit_horner(builder, w, c, args[2])
        return context.get_dummy_value()

    return signature, generate


def _emit_horner(builder: Any, w: Any, c: Any, rows: Any) -> None:
    code = _Code(builder)
    now = [cgutils.alloca_once(builder, _VECTOR) for _ in range(2)]
    top = builder.sub(rows, _int(1))
    with cgutils.for_range_slice(builder, _int(0), _int(BLOCK), _int(LANES), inc=True) as (lane, _):
        y = code.load(w, lane)
        for slot in now:
            builder.store(ir.Constant(_VECTOR, [0.0] * LANES), slot)
        with cgutils.for_range_slice(builder, top, _int(-1), _int(-1), inc=False) as (r, _):
            for k in range(2):
                place = builder.add(builder.mul(r, _int(2)), _int(k))
                scalar = code.splat(builder.load(builder.gep(c, [place])))
                builder.store(code.multiply_add(y, builder.load(now[k]), scalar), now[k])
        for k in range(2):
            code.store(builder.load(now[k]), w, builder.add(lane, _int(BLOCK * (k + 1))))
