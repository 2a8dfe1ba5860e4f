"""Vectorised inner loops, written as LLVM vector code.

Numba's own loops over several small buffers fall back to scalar code, because nothing tells LLVM
that the buffers do not overlap. The loops below fix the vector width instead; LLVM splits it into
whatever registers the machine has. Only contraction into fused multiply-adds is allowed, so results
do not depend on how the work is cut into blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
BLOCK = 64
DOUBLE = ir.DoubleType()
_INT = ir.IntType(64)
_INT32 = ir.IntType(32)
_FLAGS = ("contract",)


def integer(value: int) -> Any:
    """A constant index."""
    return ir.Constant(_INT, value)


def real(value: float) -> Any:
    """A constant number."""
    return ir.Constant(DOUBLE, value)


class Code:
    """Emits loads, stores and arithmetic on vectors of doubles."""

    def __init__(self, builder: Any, lanes: int = LANES) -> None:
        self.builder, self.lanes = builder, lanes
        self.vector = ir.VectorType(DOUBLE, lanes)
        self.zero = ir.Constant(self.vector, [0.0] * lanes)

    def _at(self, base: Any, offset: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(base, [offset]), self.vector.as_pointer())

    def load(self, base: Any, offset: Any) -> Any:
        value = self.builder.load(self._at(base, offset))
        value.align = 8
        return value

    def store(self, value: Any, base: Any, offset: Any) -> None:
        self.builder.store(value, self._at(base, offset)).align = 8

    def splat(self, scalar: Any) -> Any:
        empty = ir.Constant(self.vector, ir.Undefined)
        places = ir.Constant(ir.VectorType(_INT32, self.lanes), [0] * self.lanes)
        one = self.builder.insert_element(empty, scalar, ir.Constant(_INT32, 0))
        return self.builder.shuffle_vector(one, empty, places)

    def scalar(self, base: Any, offset: Any) -> Any:
        return self.splat(self.builder.load(self.builder.gep(base, [offset])))

    def slot(self) -> Any:
        return cgutils.alloca_once(self.builder, self.vector)

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=_FLAGS)

    def subtract(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=_FLAGS)

    def multiply(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=_FLAGS)

    def multiply_add(self, a: Any, b: Any, c: Any) -> Any:
        return self.add(self.multiply(a, b), c)

    def smaller(self, a: Any, b: Any) -> Any:
        """The smaller one; b where a is not a number."""
        return self.builder.select(self.builder.fcmp_ordered("<", a, b), a, b)

    def larger(self, a: Any, b: Any) -> Any:
        """The larger one; b where a is not a number."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def below(self, a: Any, b: Any) -> Any:
        """Where a < b."""
        return self.builder.fcmp_ordered("<", a, b)

    def root(self, a: Any) -> Any:
        kind = ir.FunctionType(self.vector, [self.vector])
        name = f"llvm.sqrt.v{self.lanes}f64"
        function = self.builder.module.declare_intrinsic(name, (), kind)
        return self.builder.call(function, [a])

    def any(self, mask: Any) -> Any:
        """Whether a vector of bits has one that is set."""
        bits = ir.IntType(self.lanes)
        return self.builder.icmp_unsigned(
            "!=", self.builder.bitcast(mask, bits), ir.Constant(bits, 0)
        )

    def select(self, mask: Any, a: Any, b: Any) -> Any:
        return self.builder.select(mask, a, b)

    def horner(
        self, y: Any, coefficients: Any, start: Any, rows: Any, results: Sequence[Any]
    ) -> None:
        r"""Polynomials :math:`\sum_r c_{rk} y^r` into the slots ``results``, k of them.

        Row r of c is at ``coefficients[(start + r) * k:]``.
        """
        count = len(results)
        for result in results:
            self.builder.store(self.zero, result)
        top = self.builder.sub(rows, integer(1))
        with cgutils.for_range_slice(self.builder, top, integer(-1), integer(-1), inc=False) as (
            r,
            _,
        ):
            place = self.builder.mul(self.builder.add(start, r), integer(count))
            for k, result in enumerate(results):
                scalar = self.scalar(coefficients, self.builder.add(place, integer(k)))
                value = self.multiply_add(y, self.builder.load(result), scalar)
                self.builder.store(value, result)


@contextmanager
def lanes(builder: Any) -> Iterator[Any]:
    """The loop over the first places of the vectors that make up a block."""
    with cgutils.for_range_slice(builder, integer(0), integer(BLOCK), integer(LANES), inc=True) as (
        lane,
        _,
    ):
        yield lane


def plain(*kinds: Any) -> tuple[Any, ...]:
    """Types of arguments, those of literals widened."""
    return tuple(types.unliteral(kind) for kind in kinds)


def pointers(context: Any, builder: Any, kinds: Any, args: Any) -> list[Any]:
    """The arguments, arrays by their data."""
    return [
        context.make_array(kind)(context, builder, arg).data
        if isinstance(kind, types.Array)
        else arg
        for kind, arg in zip(kinds, args, strict=True)
    ]


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def table_row(
    typingctx: Any,
    line: Any,
    at: Any,
    row: Any,
    columns: Any,
    basis: Any,
    coefficients: Any,
    ranks: Any,
    degree: Any,
    tile: Any,
    first: Any,
    second: Any,
) -> Any:
    r"""Two Chebyshev series at BLOCK arguments, with coefficients of low rank (Clenshaw).

    With s_j the numbers at ``line[at:]``, y_j = s_j row_0 columns_0j - row_1, clipped to [-1, 1]:
    :math:`\text{row}_{2+k} \text{columns}_{1+k,j} \sum_r T_r(y_j) \sum_q c_{rqk} B_{qj}` go to
    ``tile`` at ``first`` (k = 0) and at ``second`` (k = 1). ``basis`` is B, (rank, BLOCK) flat;
    ``coefficients`` is c, ragged: ``ranks[r]`` pairs for each r < ``degree``.
    """
    kinds = plain(line, at, row, columns, basis, coefficients, ranks, degree, tile, first, second)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit_table(builder, *pointers(context, builder, kinds, args))
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _emit_table(
    builder: Any,
    line: Any,
    at: Any,
    row: Any,
    columns: Any,
    basis: Any,
    coefficients: Any,
    ranks: Any,
    degree: Any,
    tile: Any,
    first: Any,
    second: Any,
) -> None:
    code = Code(builder)
    now, last = [code.slot(), code.slot()], [code.slot(), code.slot()]
    place = cgutils.alloca_once(builder, _INT)
    one, minus = code.splat(real(1.0)), code.splat(real(-1.0))
    top = builder.sub(degree, integer(1))
    with lanes(builder) as lane:
        s = code.load(line, builder.add(at, lane))
        scale = code.multiply(code.scalar(row, integer(0)), code.load(columns, lane))
        y = code.subtract(code.multiply(s, scale), code.scalar(row, integer(1)))
        y = code.smaller(code.larger(y, minus), one)
        twice_y = code.add(y, y)
        for slot in (*now, *last):
            builder.store(code.zero, slot)
        builder.store(integer(0), place)
        with cgutils.for_range_slice(builder, top, integer(-1), integer(-1), inc=False) as (r, _):
            is_last = builder.icmp_signed("==", r, integer(0))
            half = builder.select(is_last, real(0.5), real(1.0))
            factor = code.multiply(twice_y, code.splat(half))
            for k in range(2):
                value = builder.load(now[k])
                step = code.subtract(code.multiply(factor, value), builder.load(last[k]))
                builder.store(value, last[k])
                builder.store(step, now[k])
            rank = builder.load(builder.gep(ranks, [r]))
            start = builder.load(place)
            with cgutils.for_range(builder, rank) as loop:
                column = code.load(
                    basis, builder.add(builder.mul(loop.index, integer(BLOCK)), lane)
                )
                where = builder.add(start, builder.mul(loop.index, integer(2)))
                for k in range(2):
                    scalar = code.scalar(coefficients, builder.add(where, integer(k)))
                    total = code.multiply_add(scalar, column, builder.load(now[k]))
                    builder.store(total, now[k])
            builder.store(builder.add(start, builder.mul(rank, integer(2))), place)
        for k, target in enumerate((first, second)):
            size = code.multiply(
                code.scalar(row, integer(2 + k)),
                code.load(columns, builder.add(lane, integer(BLOCK * (1 + k)))),
            )
            value = code.multiply(size, builder.load(now[k]))
            code.store(value, tile, builder.add(target, lane))


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def homogeneous_row(
    typingctx: Any,
    line: Any,
    at: Any,
    row: Any,
    columns: Any,
    constants: Any,
    powers: Any,
    sizes: Any,
    tile: Any,
    first: Any,
    second: Any,
) -> Any:
    r"""BLOCK entries of the kernels of a homogeneous activation; whether one is near an end.

    s are the numbers at ``line[at:]``; the gap is r_max - (b s + u_i + u_j) w_i w_j, clipped to
    [0, total]. k and d are polynomials: for low <= gap <= high in
    :math:`\text{stretch}\, \text{gap}^{1/2} - \text{shift}`, elsewhere in
    :math:`2 (\text{gap}/\text{half})^{1/2} - 1` up to half, and in the same of total - gap
    beyond. The results are g = z_i z_j k + h_i + h_j and g + d (a g + e_1 s + e_0).

    ``columns`` holds u, w, z, h, each BLOCK long, and ``row`` those of the row; ``constants`` are
    named in :data:`CONSTANTS`. ``powers`` holds the coefficients of k and d, (rows, 2) flat, of the
    three ranges in turn, ``sizes`` the number of rows of each.
    """
    kinds = plain(line, at, row, columns, constants, powers, sizes, tile, first, second)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _emit_homogeneous(builder, *pointers(context, builder, kinds, args))

    return types.boolean(*kinds), generate


# edge, last: entries with a gap below or above are reported; two_over_root: 2 / half^(1/2)
CONSTANTS = (
    *("b", "r_max", "total", "edge", "last"),
    *("low", "high", "stretch", "shift", "half", "two_over_root", "one"),
    *("a", "e1", "e0"),
)


def _emit_homogeneous(
    builder: Any,
    line: Any,
    at: Any,
    row: Any,
    columns: Any,
    constants: Any,
    powers: Any,
    sizes: Any,
    tile: Any,
    first: Any,
    second: Any,
) -> Any:
    code = Code(builder)
    k, d, k_part, d_part = (code.slot() for _ in range(4))
    mask = ir.VectorType(ir.IntType(1), LANES)
    flagged = cgutils.alloca_once(builder, mask)
    builder.store(ir.Constant(mask, [0] * LANES), flagged)
    counts = [builder.load(builder.gep(sizes, [integer(m)])) for m in range(3)]
    starts = [integer(0), counts[0], builder.add(counts[0], counts[1])]
    with lanes(builder) as lane:
        p = {name: code.scalar(constants, integer(m)) for m, name in enumerate(CONSTANTS)}
        pairs = (
            (
                code.scalar(row, integer(m)),
                code.load(columns, builder.add(lane, integer(BLOCK * m))),
            )
            for m in range(4)
        )
        (u_i, u_j), (w_i, w_j), (z_i, z_j), (h_i, h_j) = pairs
        s = code.load(line, builder.add(at, lane))
        drive = code.multiply_add(p["b"], s, code.add(u_i, u_j))
        gap = code.subtract(p["r_max"], code.multiply(drive, code.multiply(w_i, w_j)))
        gap = code.smaller(code.larger(gap, code.zero), p["total"])
        ends = builder.or_(code.below(gap, p["edge"]), code.below(p["last"], gap))
        builder.store(builder.or_(builder.load(flagged), ends), flagged)

        outside = builder.or_(code.below(gap, p["low"]), code.below(p["high"], gap))
        beyond = code.below(p["half"], gap)
        parts = (
            (builder.not_(outside), gap, "stretch", "shift"),
            (builder.and_(outside, builder.not_(beyond)), gap, "two_over_root", "one"),
            (
                builder.and_(outside, beyond),
                code.subtract(p["total"], gap),
                "two_over_root",
                "one",
            ),
        )
        for slot in (k, d):
            builder.store(code.zero, slot)
        for m, (chosen, square, stretch, shift) in enumerate(parts):
            with builder.if_then(code.any(chosen), likely=m == 0):
                y = code.subtract(code.multiply(code.root(square), p[stretch]), p[shift])
                code.horner(y, powers, starts[m], counts[m], (k_part, d_part))
                for slot, part in ((k, k_part), (d, d_part)):
                    value = code.select(chosen, builder.load(part), builder.load(slot))
                    builder.store(value, slot)
        g = code.multiply_add(code.multiply(z_i, z_j), builder.load(k), code.add(h_i, h_j))
        rate = code.multiply_add(p["a"], g, code.multiply_add(p["e1"], s, p["e0"]))
        code.store(g, tile, builder.add(first, lane))
        code.store(code.multiply_add(builder.load(d), rate, g), tile, builder.add(second, lane))
    return code.any(builder.load(flagged))


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def extremes(
    typingctx: Any, line: Any, at: Any, inverse: Any, start: Any, runs: Any, scale: Any, found: Any
) -> Any:
    """Smallest and largest of ``scale * line[at:] * inverse[start:]``, over inverse > 0.

    ``runs`` times LANES numbers are taken; ``found`` (2 * LANES) is updated lane by lane.
    """
    kinds = plain(line, at, inverse, start, runs, scale, found)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _emit_extremes(builder, *pointers(context, builder, kinds, args))
        return context.get_dummy_value()

    return types.void(*kinds), generate


def _emit_extremes(
    builder: Any, line: Any, at: Any, inverse: Any, start: Any, runs: Any, scale: Any, found: Any
) -> None:
    code = Code(builder)
    low, top = code.slot(), code.slot()
    places = integer(0), integer(LANES)
    for slot, place in zip((low, top), places, strict=True):
        builder.store(code.load(found, place), slot)
    with cgutils.for_range(builder, runs) as loop:
        step = builder.mul(loop.index, integer(LANES))
        weight = code.load(inverse, builder.add(start, step))
        s = code.load(line, builder.add(at, step))
        y = code.multiply(s, code.multiply(code.splat(scale), weight))
        used = builder.fcmp_ordered(">", weight, code.zero)
        old = builder.load(low), builder.load(top)
        builder.store(code.smaller(code.select(used, y, old[0]), old[0]), low)
        builder.store(code.larger(code.select(used, y, old[1]), old[1]), top)
    for slot, place in zip((low, top), places, strict=True):
        code.store(builder.load(slot), found, place)
