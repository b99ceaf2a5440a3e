"""Sums of rows for orthogonal64.py, in vector code. They are of integers and exact, so products may
be fused with additions, and what is zero left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from folkmoot.learning.methods.distro.cpu.bitmask import pack_mask
from folkmoot.learning.methods.distro.cpu.simd import (
    COLUMNS,
    FLOATS,
    INTS,
    SIMD_WIDTH,
    N,
    address,
    broadcast,
    pointers,
)


def _masked_row_sum(
    b: Any, weight: Callable[[Any], Any], mask: Any, rows: Any, masks: Any = None
) -> tuple[list[Any], Any]:
    """The sum of the rows whose bit is set, each times its weight, as eight vectors; and which bits
    are set in any of the words that `masks` has for these rows."""
    before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
    word, flag = mask.type, ir.IntType(1)
    zero, nothing = ir.Constant(word, 0), ir.Constant(FLOATS, [0.0] * SIMD_WIDTH)
    b.cbranch(b.icmp_signed("!=", mask, zero), loop, after)
    b.position_at_end(loop)
    left, among, totals = b.phi(word), b.phi(word), [b.phi(FLOATS) for _ in COLUMNS]
    number = b.cttz(left, ir.Constant(flag, 1))
    factor, row = weight(number), b.mul(number, ir.Constant(word, N))
    values = [b.load(address(b, rows, row, c), align=4) for c in COLUMNS]
    terms = [b.fmul(factor, x, flags=("contract",)) for x in values]
    sums = [b.fadd(t, x, flags=("contract",)) for t, x in zip(totals, terms, strict=True)]
    more = among if masks is None else b.or_(among, b.load(b.gep(masks, [number])))
    rest = b.and_(left, b.sub(left, ir.Constant(word, 1)))
    b.cbranch(b.icmp_signed("!=", rest, zero), loop, after)
    b.position_at_end(after)
    made, found = [b.phi(FLOATS) for _ in COLUMNS], b.phi(word)
    carried = [(left, mask, rest), (among, zero, more), (found, zero, more)]
    carried += [(phi, nothing, x) for phi, x in zip(totals + made, sums + sums, strict=True)]
    for phi, first, again in carried:
        phi.add_incoming(first, before)
        phi.add_incoming(again, loop)
    return made, found


def _abs(b: Any, x: Any) -> Any:
    flag = ir.IntType(1)
    kind = ir.FunctionType(INTS, [INTS, flag])
    magnitude = b.module.declare_intrinsic("llvm.abs.v8i32", (), kind)
    return b.call(magnitude, [x, ir.Constant(flag, 0)])


def _abs_sum(b: Any, values: list[Any]) -> Any:
    """The sum of the magnitudes of integers."""
    total = ir.Constant(INTS, [0] * SIMD_WIDTH)
    for x in values:
        total = b.add(total, _abs(b, b.fptosi(x, INTS)))
    kind = ir.FunctionType(ir.IntType(32), [INTS])
    add = b.module.declare_intrinsic("llvm.vector.reduce.add.v8i32", (), kind)
    return b.call(add, [total])


def _rint(b: Any, x: Any) -> Any:
    rint = b.module.declare_intrinsic("llvm.rint.v8f32", (), ir.FunctionType(FLOATS, [FLOATS]))
    return b.call(rint, [x])


def _sum_rows(
    typing: Any, weights: Any, at: Any, mask: Any, rows: Any, masks: Any,
    target: Any, to: Any, out_mask: Any,
) -> Any:  # fmt: skip
    """To 64 values of `target` from `to` on: the sum of the rows whose bit is set, times weights
    that lie 64 apart from `at` on. All are integers. Returns the sum of their magnitudes.

    `masks` has a word for each row that says what is not zero there; out_mask[0] becomes the same
    for the sum."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        weights, rows, masks, target, out_mask = pointers(context, b, sig, args, (0, 3, 4, 5, 7))

        def weight(number: Any) -> Any:
            place = b.add(args[1], b.mul(number, ir.Constant(number.type, N)))
            return broadcast(b, b.load(b.gep(weights, [place])))

        sums, among = _masked_row_sum(b, weight, args[2], rows, masks)
        b.store(among, out_mask)
        for c, x in zip(COLUMNS, sums, strict=True):
            b.store(x, address(b, target, args[6], c), align=4)
        return _abs_sum(b, sums)

    intp = types.intp
    kinds = (weights, intp, types.int64, rows, masks, target, intp, out_mask)
    return types.int32(*kinds), codegen


sum_rows: Any = intrinsic(_sum_rows)


def _polynomial_row(
    typing: Any, x: Any, at: Any, mask: Any, rows: Any, linear: Any, higher: Any, target: Any
) -> Any:
    """64 values of `target` from `at` on ← those of x times `linear`, plus `higher` times the sum
    of the rows whose bit is set, each times its value in x; rounded."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, rows, target = pointers(context, b, sig, args, (0, 3, 6))
        linear, higher = broadcast(b, args[4]), broadcast(b, args[5])

        def weight(number: Any) -> Any:
            return broadcast(b, b.load(b.gep(x, [b.add(args[1], number)])))

        sums, _ = _masked_row_sum(b, weight, args[2], rows)
        for c, total in zip(COLUMNS, sums, strict=True):
            here = b.load(address(b, x, args[1], c), align=4)
            made = _rint(b, b.fadd(b.fmul(here, linear), b.fmul(total, higher)))
            b.store(made, address(b, target, args[1], c), align=4)
        return context.get_dummy_value()

    float32 = types.float32
    kinds = (x, types.intp, types.int64, rows, float32, float32, target)
    return types.void(*kinds), codegen


polynomial_row: Any = intrinsic(_polynomial_row)


def _orthogonalise_row(
    typing: Any, x: Any, at: Any, mask: Any, rows: Any, scale: Any, linear: Any, higher: Any
) -> Any:
    """As `polynomial_row`, in place, with x times `scale`, rounded, for x; not rounded after."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, rows = pointers(context, b, sig, args, (0, 3))
        scale, linear, higher = (broadcast(b, args[i]) for i in (4, 5, 6))

        def weight(number: Any) -> Any:
            value = broadcast(b, b.load(b.gep(x, [b.add(args[1], number)])))
            return _rint(b, b.fmul(value, scale))

        sums, _ = _masked_row_sum(b, weight, args[2], rows)
        for c, total in zip(COLUMNS, sums, strict=True):
            place = address(b, x, args[1], c)
            here = _rint(b, b.fmul(b.load(place, align=4), scale))
            b.store(b.fadd(b.fmul(here, linear), b.fmul(total, higher)), place, align=4)
        return context.get_dummy_value()

    float32 = types.float32
    kinds = (x, types.intp, types.int64, rows, float32, float32, float32)
    return types.void(*kinds), codegen


orthogonalise_row: Any = intrinsic(_orthogonalise_row)


def _round_row(typing: Any, x: Any, at: Any, share: Any, scale: Any) -> Any:
    """Multiply 64 values from x[at] on, first by one, then by the other; round them to integers.

    Returns which are then not zero: a bit each, the first the lowest."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = pointers(context, b, sig, args, (0,))
        share, scale = broadcast(b, args[2]), broadcast(b, args[3])
        places = [address(b, data, args[1], c) for c in COLUMNS]
        rounded = [
            _rint(b, b.fmul(b.fmul(b.load(place, align=4), share), scale)) for place in places
        ]
        for place, x in zip(places, rounded, strict=True):
            b.store(x, place, align=4)
        zero = ir.Constant(FLOATS, [0.0] * SIMD_WIDTH)
        return pack_mask(b, [b.fcmp_unordered("!=", x, zero) for x in rounded])

    return types.int64(x, types.intp, types.float32, types.float32), codegen


round_row: Any = intrinsic(_round_row)


def _abs_row_sum(typing: Any, x: Any, at: Any) -> Any:
    """The sum of the magnitudes of 64 integers from x[at] on."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = pointers(context, b, sig, args, (0,))
        values = [b.load(address(b, data, args[1], c), align=4) for c in COLUMNS]
        return _abs_sum(b, values)

    return types.int32(x, types.intp), codegen


abs_row_sum: Any = intrinsic(_abs_row_sum)


def _pack_row_pairs(typing: Any, x: Any, at: Any, scale: Any, pairs: Any, to: Any) -> Any:
    """Two rows of 64, from x[at] on, times `scale` and rounded, as 64 int32 from pairs[to] on: the
    low half of each is a value of the first row, the high half that of the second. They fit 16
    bits."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, pairs = pointers(context, b, sig, args, (0, 3))
        scale = broadcast(b, args[2])
        low, half = (ir.Constant(INTS, [v] * SIMD_WIDTH) for v in (0xFFFF, 16))
        for c in COLUMNS:
            rows = (b.load(address(b, x, args[1], c + by), align=4) for by in (0, N))
            one, two = (b.fptosi(_rint(b, b.fmul(row, scale)), INTS) for row in rows)
            both = b.or_(b.and_(one, low), b.shl(two, half))
            place = b.bitcast(address(b, pairs, args[4], c), INTS.as_pointer())
            b.store(both, place, align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.float32, pairs, types.intp), codegen


pack_row_pairs: Any = intrinsic(_pack_row_pairs)


def _dot_pairs(b: Any, x: Any, y: Any) -> Any:
    """Of eight pairs each, the sums of both products: one instruction where a processor has it."""
    shorts, wide = (
        ir.VectorType(ir.IntType(16), 2 * SIMD_WIDTH),
        ir.VectorType(ir.IntType(32), 2 * SIMD_WIDTH),
    )
    x, y = (b.sext(b.bitcast(v, shorts), wide) for v in (x, y))
    product = b.mul(x, y)
    even, odd = (ir.Constant(INTS, list(range(first, 2 * SIMD_WIDTH, 2))) for first in (0, 1))
    return b.add(*(b.shuffle_vector(product, product, half) for half in (even, odd)))


def _block_product(b: Any, pairs: Any, i: Any, j: Any, width: int) -> Iterator[tuple[Any, Any]]:
    """Columns i … i + 3 times `width` columns from j on of 32 rows of 64 pairs: where eight sums
    belong in a matrix with rows of 64, and the sums, as float32."""
    columns = range(0, width, SIMD_WIDTH)
    before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
    start, end = ir.Constant(i.type, 0), ir.Constant(i.type, N * N // 2)
    b.branch(loop)
    b.position_at_end(loop)
    at, totals = b.phi(i.type), [[b.phi(INTS) for _ in columns] for _ in range(4)]
    column = b.add(at, j)
    values = [
        b.load(b.bitcast(address(b, pairs, column, c), INTS.as_pointer()), align=4) for c in columns
    ]
    then = b.add(at, ir.Constant(i.type, N))
    for row, sums in enumerate(totals):
        place = b.add(at, b.add(i, ir.Constant(i.type, row)))
        factor = broadcast(b, b.load(b.gep(pairs, [place])), INTS)
        for phi, value in zip(sums, values, strict=True):
            phi.add_incoming(ir.Constant(INTS, [0] * SIMD_WIDTH), before)
            phi.add_incoming(b.add(phi, _dot_pairs(b, factor, value)), loop)
    at.add_incoming(start, before)
    at.add_incoming(then, loop)
    made = [[phi.incomings[1][0] for phi in sums] for sums in totals]
    b.cbranch(b.icmp_signed("<", then, end), loop, after)
    b.position_at_end(after)
    for row, sums in enumerate(made):
        for c, x in zip(columns, sums, strict=True):
            place = b.mul(b.add(i, ir.Constant(i.type, row)), ir.Constant(i.type, N))
            yield b.add(b.add(place, j), ir.Constant(i.type, c)), b.sitofp(x, FLOATS)


def _gram_block(width: int) -> Any:
    def declare(typing: Any, pairs: Any, i: Any, j: Any, target: Any) -> Any:
        """Columns i … i + 3 times `width` columns from j on of 32 rows of 64 pairs, to these rows
        and columns of `target`, which has rows of 64."""

        def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
            pairs, target = pointers(context, b, sig, args, (0, 3))
            for place, x in _block_product(b, pairs, args[1], args[2], width):
                b.store(x, address(b, target, place, 0), align=4)
            return context.get_dummy_value()

        return types.void(pairs, types.intp, types.intp, target), codegen

    return intrinsic(declare)


gram_16, gram_8 = _gram_block(16), _gram_block(8)


def _polynomial_block(width: int) -> Any:
    def declare(
        typing: Any, pairs: Any, i: Any, j: Any, x: Any, scale: Any, linear: Any, higher: Any,
        target: Any,
    ) -> Any:  # fmt: skip
        """The same, times `higher`, plus these rows and columns of x, times `scale` and rounded,
        times `linear`; rounded."""

        def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
            pairs, x, target = pointers(context, b, sig, args, (0, 3, 7))
            scale, linear, higher = (broadcast(b, args[n]) for n in (4, 5, 6))
            for place, total in _block_product(b, pairs, args[1], args[2], width):
                here = _rint(b, b.fmul(b.load(address(b, x, place, 0), align=4), scale))
                made = _rint(b, b.fadd(b.fmul(here, linear), b.fmul(total, higher)))
                b.store(made, address(b, target, place, 0), align=4)
            return context.get_dummy_value()

        intp, float32 = types.intp, types.float32
        return types.void(pairs, intp, intp, x, float32, float32, float32, target), codegen

    return intrinsic(declare)


polynomial_16, polynomial_8 = _polynomial_block(16), _polynomial_block(8)
