"""Small pieces of vector code that the compiled kernels are made of: what numba has no word for.

Vectors hold eight neighbouring values. Sums of products may be fused here: for callers whose sums
are exact in any case.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from folkmoot.learning.distro.lanes import LANES, N, VECTOR

_COLUMNS = range(0, N, LANES)
_WHOLE = ir.VectorType(ir.IntType(32), LANES)


def _data(context: Any, b: Any, sig: Any, args: Any, which: tuple[int, ...]) -> list[Any]:
    """Where the values of some arguments, which are arrays, begin."""
    return [context.make_array(sig.args[i])(context, b, args[i]).data for i in which]


def _address(b: Any, base: Any, index: Any, by: int) -> Any:
    where = b.gep(base, [b.add(index, ir.Constant(index.type, by))])
    return b.bitcast(where, VECTOR.as_pointer())


def _spread(b: Any, x: Any, kind: Any = VECTOR) -> Any:
    """A vector whose lanes are all x."""
    nowhere = ir.Constant(kind, ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    alone = b.insert_element(nowhere, x, ir.Constant(ir.IntType(32), 0))
    return b.shuffle_vector(alone, alone, everywhere)


def _emit_products(context: Any, b: Any, sig: Any, args: Any, width: int) -> Any:
    made = [context.make_array(sig.args[i])(context, b, args[i]).data for i in (0, 2, 4)]
    weights, rows, target = made
    at, first, to = args[1], args[3], args[5]
    def weight(i: int) -> Any:
        return b.load(b.gep(weights, [b.add(at, ir.Constant(at.type, i))]))

    factors = [[_spread(b, weight(line * N + i)) for i in range(4)] for line in range(2)]
    for c in range(0, width, LANES):
        values = [b.load(_address(b, rows, first, i * N + c), align=4) for i in range(4)]
        for line in range(2):
            where = _address(b, target, to, line * N + c)
            total = b.load(where, align=4)
            for factor, value in zip(factors[line], values, strict=True):
                term = b.fmul(factor, value, flags=("contract",))
                total = b.fadd(total, term, flags=("contract",))
            b.store(total, where, align=4)
    return context.get_dummy_value()


def _products(width: int) -> Any:
    """f(weights, at, rows, first, target, to): to `width` values of two neighbouring rows of
    `target`, from `to` on, add the sum of four rows, from `first` on, times four weights from `at`
    on, or those a row further. All matrices have rows of 64.

    Products and sums may be fused: for callers whose sums are exact in any case."""

    @intrinsic
    def products(
        typing: Any, weights: Any, at: Any, rows: Any, first: Any, target: Any, to: Any
    ) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _emit_products(context, builder, sig, args, width)

        kinds = (weights, types.intp, rows, types.intp, target, types.intp)
        return types.void(*kinds), codegen

    return products


add_64, add_48, add_32, add_16 = (_products(width) for width in (64, 48, 32, 16))


def _turned(b: Any, half: Callable[[int, int], Any]) -> list[Any]:
    """Eight rows of eight as the columns they make; `half(i, c)` loads four of row i, from c on.

    Rows i and i + 4 are loaded into one vector, so that nothing has to cross its middle."""

    def shuffle(x: Any, y: Any, order: tuple[int, ...]) -> Any:
        return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))

    columns = []
    for c in (0, 4):
        x, y, z, u = (shuffle(half(i, c), half(i + 4, c), tuple(range(LANES))) for i in range(4))
        low, high = (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)
        first, last = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
        for part in (low, high):
            pair = shuffle(x, y, part), shuffle(z, u, part)
            columns += [shuffle(*pair, first), shuffle(*pair, last)]
    return columns


def _half(b: Any, base: Any) -> Any:
    """The four values at a pointer to float."""
    four = ir.VectorType(ir.FloatType(), LANES // 2).as_pointer()
    return b.load(b.bitcast(base, four), align=4)


def _square(b: Any, data: Any, at: Any) -> list[Any]:
    """The columns of the 8 × 8 values that begin at data[at], in a matrix with rows of 64."""

    def half(i: int, c: int) -> Any:
        return _half(b, b.gep(data, [b.add(at, ir.Constant(at.type, i * N + c))]))

    return _turned(b, half)


def _turn8(typing: Any, source: Any, at: Any, target: Any, to: Any) -> Any:
    """Transpose 8 × 8 values of a matrix with rows of 64 into another, or in place."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        source, target = _data(context, b, sig, args, (0, 2))
        for i, x in enumerate(_square(b, source, args[1])):
            b.store(x, _address(b, target, args[3], i * N), align=4)
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp), codegen


turn8: Any = intrinsic(_turn8)


def _swap8(typing: Any, x: Any, at: Any, to: Any) -> Any:
    """Transpose two times 8 × 8 values of a matrix with rows of 64, each to the other's place."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = _data(context, b, sig, args, (0,))
        columns = _square(b, data, args[1]), _square(b, data, args[2])
        for place, made in zip((args[2], args[1]), columns, strict=True):
            for i, values in enumerate(made):
                b.store(values, _address(b, data, place, i * N), align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.intp), codegen


swap8: Any = intrinsic(_swap8)


def _fetch(typing: Any, source: Any, at: Any) -> Any:
    """Ask for the cache line of source[at] ahead of its use; a hint, never a fault."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, b, args[0]).data
        byte = b.bitcast(b.gep(data, [args[1]]), ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        hint = b.module.declare_intrinsic(
            "llvm.prefetch", [byte.type], ir.FunctionType(ir.VoidType(), [byte.type, *[number] * 3])
        )
        b.call(hint, [byte, *(ir.Constant(number, x) for x in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(source, types.intp), codegen


fetch: Any = intrinsic(_fetch)


def _word(typing: Any, source: Any, at: Any) -> Any:
    """The four bytes of `source` from `at` on, the first the lowest, wherever they lie."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        data = context.make_array(sig.args[0])(context, b, args[0]).data
        where = b.bitcast(b.gep(data, [args[1]]), ir.IntType(32).as_pointer())
        value = b.load(where, align=1)
        if sys.byteorder == "big":
            value = b.bswap(value)
        return b.zext(value, ir.IntType(64))

    return types.int64(source, types.intp), codegen


word: Any = intrinsic(_word)


def _sums(
    b: Any, weight: Callable[[Any], Any], bits: Any, rows: Any, others: Any = None
) -> tuple[list[Any], Any]:
    """The sum of the rows whose bit is set, each times its weight, as eight vectors; and which bits
    are set in any of the words that `others` has for these rows."""
    before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
    word, flag = bits.type, ir.IntType(1)
    zero, nothing = ir.Constant(word, 0), ir.Constant(VECTOR, [0.0] * LANES)
    b.cbranch(b.icmp_signed("!=", bits, zero), loop, after)
    b.position_at_end(loop)
    left, among, totals = b.phi(word), b.phi(word), [b.phi(VECTOR) for _ in _COLUMNS]
    number = b.cttz(left, ir.Constant(flag, 1))
    factor, row = weight(number), b.mul(number, ir.Constant(word, N))
    values = [b.load(_address(b, rows, row, c), align=4) for c in _COLUMNS]
    terms = [b.fmul(factor, x, flags=("contract",)) for x in values]
    sums = [b.fadd(t, x, flags=("contract",)) for t, x in zip(totals, terms, strict=True)]
    more = among if others is None else b.or_(among, b.load(b.gep(others, [number])))
    rest = b.and_(left, b.sub(left, ir.Constant(word, 1)))
    b.cbranch(b.icmp_signed("!=", rest, zero), loop, after)
    b.position_at_end(after)
    made, found = [b.phi(VECTOR) for _ in _COLUMNS], b.phi(word)
    carried = [(left, bits, rest), (among, zero, more), (found, zero, more)]
    carried += [(phi, nothing, x) for phi, x in zip(totals + made, sums + sums, strict=True)]
    for phi, first, again in carried:
        phi.add_incoming(first, before)
        phi.add_incoming(again, loop)
    return made, found


def _bits(b: Any, values: list[Any]) -> Any:
    """A bit for each of 64 values that is not zero, the first the lowest."""
    zero = ir.Constant(VECTOR, [0.0] * LANES)
    return _as_bits(b, [b.fcmp_unordered("!=", x, zero) for x in values])


def _as_bits(b: Any, truths: list[Any]) -> Any:
    found = ir.Constant(ir.IntType(64), 0)
    for c, which in zip(_COLUMNS, truths, strict=True):
        bits = b.zext(b.bitcast(which, ir.IntType(LANES)), ir.IntType(64))
        found = b.or_(found, b.shl(bits, ir.Constant(ir.IntType(64), c)))
    return found


def _magnitude(b: Any, x: Any) -> Any:
    flag = ir.IntType(1)
    kind = ir.FunctionType(_WHOLE, [_WHOLE, flag])
    magnitude = b.module.declare_intrinsic("llvm.abs.v8i32", (), kind)
    return b.call(magnitude, [x, ir.Constant(flag, 0)])


def _rounded(b: Any, x: Any) -> Any:
    rint = b.module.declare_intrinsic("llvm.rint.v8f32", (), ir.FunctionType(VECTOR, [VECTOR]))
    return b.call(rint, [x])


def _combine(
    typing: Any, weights: Any, at: Any, bits: Any, rows: Any, others: Any,
    target: Any, to: Any, which: Any,
) -> Any:  # fmt: skip
    """To 64 values of `target` from `to` on: the sum of the rows whose bit is set, times weights
    that lie 64 apart from `at` on. All are integers. Returns the sum of their magnitudes.

    `others` has a word for each row that says what is not zero there; which[0] becomes the same for
    the sum."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        weights, rows, others, target, which = _data(context, b, sig, args, (0, 3, 4, 5, 7))

        def weight(number: Any) -> Any:
            place = b.add(args[1], b.mul(number, ir.Constant(number.type, N)))
            return _spread(b, b.load(b.gep(weights, [place])))

        sums, among = _sums(b, weight, args[2], rows, others)
        b.store(among, which)
        total = ir.Constant(_WHOLE, [0] * LANES)
        for c, x in zip(_COLUMNS, sums, strict=True):
            b.store(x, _address(b, target, args[6], c), align=4)
            total = b.add(total, _magnitude(b, b.fptosi(x, _WHOLE)))
        kind = ir.FunctionType(ir.IntType(32), [_WHOLE])
        add = b.module.declare_intrinsic("llvm.vector.reduce.add.v8i32", (), kind)
        return b.call(add, [total])

    whole = types.intp
    kinds = (weights, whole, types.int64, rows, others, target, whole, which)
    return types.int32(*kinds), codegen


combine: Any = intrinsic(_combine)


def _mix_row(
    typing: Any, x: Any, at: Any, bits: Any, rows: Any, own: Any, other: Any, target: Any
) -> Any:
    """64 values of `target` from `at` on ← those of x times `own`, plus `other` times the sum of the
    rows whose bit is set, each times its value in x; rounded."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, rows, target = _data(context, b, sig, args, (0, 3, 6))
        own, other = _spread(b, args[4]), _spread(b, args[5])

        def weight(number: Any) -> Any:
            return _spread(b, b.load(b.gep(x, [b.add(args[1], number)])))

        sums, _ = _sums(b, weight, args[2], rows)
        for c, total in zip(_COLUMNS, sums, strict=True):
            here = b.load(_address(b, x, args[1], c), align=4)
            made = _rounded(b, b.fadd(b.fmul(here, own), b.fmul(total, other)))
            b.store(made, _address(b, target, args[1], c), align=4)
        return context.get_dummy_value()

    single = types.float32
    kinds = (x, types.intp, types.int64, rows, single, single, target)
    return types.void(*kinds), codegen


mix_row: Any = intrinsic(_mix_row)


def _even_row(
    typing: Any, x: Any, at: Any, bits: Any, rows: Any, scale: Any, own: Any, other: Any, target: Any
) -> Any:
    """The same with x times `scale`, rounded, in place of x; the result is not."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, rows, target = _data(context, b, sig, args, (0, 3, 7))
        scale, own, other = (_spread(b, args[i]) for i in (4, 5, 6))

        def weight(number: Any) -> Any:
            value = _spread(b, b.load(b.gep(x, [b.add(args[1], number)])))
            return _rounded(b, b.fmul(value, scale))

        sums, _ = _sums(b, weight, args[2], rows)
        for c, total in zip(_COLUMNS, sums, strict=True):
            here = _rounded(b, b.fmul(b.load(_address(b, x, args[1], c), align=4), scale))
            made = b.fadd(b.fmul(here, own), b.fmul(total, other))
            b.store(made, _address(b, target, args[1], c), align=4)
        return context.get_dummy_value()

    single = types.float32
    kinds = (x, types.intp, types.int64, rows, single, single, single, target)
    return types.void(*kinds), codegen


even_row: Any = intrinsic(_even_row)


def _round_row(typing: Any, x: Any, at: Any, share: Any, scale: Any) -> Any:
    """Multiply 64 values from x[at] on, first by one, then by the other; round them to integers."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = _data(context, b, sig, args, (0,))
        share, scale = _spread(b, args[2]), _spread(b, args[3])
        for c in _COLUMNS:
            place = _address(b, data, args[1], c)
            made = b.fmul(b.fmul(b.load(place, align=4), share), scale)
            b.store(_rounded(b, made), place, align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, types.float32, types.float32), codegen


round_row: Any = intrinsic(_round_row)



def _others_than_zero(typing: Any, x: Any, at: Any) -> Any:
    """Which of the 64 values from x[at] on are not zero: a bit each, the first the lowest."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = _data(context, b, sig, args, (0,))
        return _bits(b, [b.load(_address(b, data, args[1], c), align=4) for c in _COLUMNS])

    return types.int64(x, types.intp), codegen


others_than_zero: Any = intrinsic(_others_than_zero)


def _count(typing: Any, bits: Any) -> Any:
    """How many bits are set."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.ctpop(args[0])

    return types.int64(types.int64), codegen


count: Any = intrinsic(_count)


def _single(typing: Any, bits: Any) -> Any:
    """The float32 that has these bits."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


single: Any = intrinsic(_single)


def _lowest(typing: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set; bits must not be zero."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


lowest: Any = intrinsic(_lowest)


def _without_sign(b: Any, data: Any, at: Any, by: int) -> Any:
    place = b.bitcast(_address(b, data, at, by), _WHOLE.as_pointer())
    return b.and_(b.load(place, align=4), ir.Constant(_WHOLE, [0x7FFFFFFF] * LANES))


def _tops(typing: Any, x: Any, first: Any, last: Any, out: Any, to: Any) -> Any:
    """To out[to] and the seven after it: the largest bits without a sign among every eighth of
    x[first] … x[last - 1]. Both arrays are int32; a block of 64 is taken at a time."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, out = _data(context, b, sig, args, (0, 3))
        before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        at, found = b.phi(args[1].type), b.phi(_WHOLE)
        tops = [_without_sign(b, x, at, c) for c in _COLUMNS]
        while len(tops) > 1:
            tops = [_larger(b, *tops[i : i + 2]) for i in range(0, len(tops), 2)]
        top = _larger(b, found, tops[0])
        then = b.add(at, ir.Constant(at.type, N))
        b.cbranch(b.icmp_signed("<", then, args[2]), loop, after)
        for phi, start, again in ((at, args[1], then), (found, ir.Constant(_WHOLE, [0] * 8), top)):
            phi.add_incoming(start, before)
            phi.add_incoming(again, loop)
        b.position_at_end(after)
        place = b.bitcast(_address(b, out, args[4], 0), _WHOLE.as_pointer())
        b.store(top, place, align=4)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(x, whole, whole, out, whole), codegen


def _larger(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed(">", x, y), x, y)


tops: Any = intrinsic(_tops)


def _reaching(typing: Any, x: Any, at: Any, bar: Any) -> Any:
    """Which of the 64 int32 from x[at] on reach a bar, signs left out: a bit each."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = _data(context, b, sig, args, (0,))
        bar = _spread(b, args[2], _WHOLE)
        values = [_without_sign(b, data, args[1], c) for c in _COLUMNS]
        return _as_bits(b, [b.icmp_signed(">=", x, bar) for x in values])

    return types.int64(x, types.intp, types.int32), codegen


reaching: Any = intrinsic(_reaching)


def _move_row(typing: Any, x: Any, at: Any, target: Any, u: Any, keep: Any, add: Any) -> Any:
    """64 values of `target` from `at` on ← those of x times `keep`, plus u times `add`."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, target, u = _data(context, b, sig, args, (0, 2, 3))
        keep, add, start = _spread(b, args[4]), _spread(b, args[5]), ir.Constant(args[1].type, 0)
        moved = []
        for c in _COLUMNS:
            here = b.fmul(b.load(_address(b, x, args[1], c), align=4), keep)
            by = b.fmul(b.load(_address(b, u, start, c), align=4), add)
            moved.append(b.fadd(here, by))
        for c, made in zip(_COLUMNS, moved, strict=True):
            b.store(made, _address(b, target, args[1], c), align=4)
        return context.get_dummy_value()

    whole, single = types.intp, types.float32
    return types.void(x, whole, target, u, single, single), codegen


move_row: Any = intrinsic(_move_row)


def _copy_row(typing: Any, x: Any, at: Any, target: Any, to: Any) -> Any:
    """Copy 64 values."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, target = _data(context, b, sig, args, (0, 2))
        for c in _COLUMNS:
            b.store(b.load(_address(b, x, args[1], c), align=4), _address(b, target, args[3], c), align=4)
        return context.get_dummy_value()

    return types.void(x, types.intp, target, types.intp), codegen


copy_row: Any = intrinsic(_copy_row)
