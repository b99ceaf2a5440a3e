"""Sums of rows for orthogonal64.py, in vector code. They are of integers and exact, so products may
be fused with additions, and what is zero left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from folkmoot.learning.methods.distro.cpu.bitmask import pack_mask
from folkmoot.learning.methods.distro.cpu.simd import (
    COLUMNS,
    FLOATS,
    INTS,
    SIMD_WIDTH,
    Array,
    Float32,
    Index,
    Int32,
    Int64,
    N,
    address,
    broadcast,
    instruction,
    repeat,
)


def _masked_row_sum(
    b: Any, weight: Callable[[Any], Any], mask: Any, rows: Any, masks: Any = None
) -> tuple[Sequence[Any], Any]:
    """The sum of the rows whose bit is set, each times its weight, as eight vectors; and which bits
    are set in any of the words that `masks` has for these rows."""
    word, zero = mask.type, ir.Constant(mask.type, 0)

    def turn(left: Any, among: Any, *totals: Any) -> Any:
        number = b.cttz(left, ir.Constant(ir.IntType(1), 1))
        factor, row = weight(number), b.mul(number, ir.Constant(word, N))
        values = [b.load(address(b, rows, row, c), align=4) for c in COLUMNS]
        terms = [b.fmul(factor, x, flags=("contract",)) for x in values]
        sums = [b.fadd(t, x, flags=("contract",)) for t, x in zip(totals, terms, strict=True)]
        more = among if masks is None else b.or_(among, b.load(b.gep(masks, [number])))
        rest = b.and_(left, b.sub(left, ir.Constant(word, 1)))
        return b.icmp_signed("!=", rest, zero), (rest, more, *sums)

    starts = (mask, zero, *[ir.Constant(FLOATS, [0.0] * SIMD_WIDTH) for _ in COLUMNS])
    _, found, *made = repeat(b, starts, turn, begin=b.icmp_signed("!=", mask, zero))
    return made, found


def _abs(b: Any, x: Any) -> Any:
    flag = ir.IntType(1)
    kind = ir.FunctionType(INTS, [INTS, flag])
    magnitude = b.module.declare_intrinsic("llvm.abs.v8i32", (), kind)
    return b.call(magnitude, [x, ir.Constant(flag, 0)])


def _abs_sum(b: Any, values: Sequence[Any]) -> Any:
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


@instruction
def sum_rows(
    b: Any, weights: Array, at: Index, mask: Int64, rows: Array, masks: Array,
    target: Array, to: Index, out_mask: Array,
) -> Int32:  # fmt: skip
    """To 64 values of `target` from `to` on: the sum of the rows whose bit is set, times weights
    that lie 64 apart from `at` on. All are integers. Returns the sum of their magnitudes.

    `masks` has a word for each row that says what is not zero there; out_mask[0] becomes the same
    for the sum."""

    def weight(number: Any) -> Any:
        place = b.add(at, b.mul(number, ir.Constant(number.type, N)))
        return broadcast(b, b.load(b.gep(weights, [place])))

    sums, among = _masked_row_sum(b, weight, mask, rows, masks)
    b.store(among, out_mask)
    for c, x in zip(COLUMNS, sums, strict=True):
        b.store(x, address(b, target, to, c), align=4)
    return _abs_sum(b, sums)


@instruction
def polynomial_row(
    b: Any, x: Array, at: Index, mask: Int64, rows: Array, linear: Float32, higher: Float32,
    target: Array,
) -> None:  # fmt: skip
    """64 values of `target` from `at` on ← those of x times `linear`, plus `higher` times the sum
    of the rows whose bit is set, each times its value in x; rounded."""
    linear, higher = broadcast(b, linear), broadcast(b, higher)

    def weight(number: Any) -> Any:
        return broadcast(b, b.load(b.gep(x, [b.add(at, number)])))

    sums, _ = _masked_row_sum(b, weight, mask, rows)
    for c, total in zip(COLUMNS, sums, strict=True):
        here = b.load(address(b, x, at, c), align=4)
        made = _rint(b, b.fadd(b.fmul(here, linear), b.fmul(total, higher)))
        b.store(made, address(b, target, at, c), align=4)


@instruction
def orthogonalise_row(
    b: Any, x: Array, at: Index, mask: Int64, rows: Array, scale: Float32, linear: Float32,
    higher: Float32,
) -> None:  # fmt: skip
    """As `polynomial_row`, in place, with x times `scale`, rounded, for x; not rounded after."""
    scale, linear, higher = (broadcast(b, value) for value in (scale, linear, higher))

    def weight(number: Any) -> Any:
        value = broadcast(b, b.load(b.gep(x, [b.add(at, number)])))
        return _rint(b, b.fmul(value, scale))

    sums, _ = _masked_row_sum(b, weight, mask, rows)
    for c, total in zip(COLUMNS, sums, strict=True):
        place = address(b, x, at, c)
        here = _rint(b, b.fmul(b.load(place, align=4), scale))
        b.store(b.fadd(b.fmul(here, linear), b.fmul(total, higher)), place, align=4)


@instruction
def round_row(b: Any, x: Array, at: Index, share: Float32, scale: Float32) -> Int64:
    """Multiply 64 values from x[at] on, first by one, then by the other; round them to integers.

    Returns which are then not zero: a bit each, the first the lowest."""
    share, scale = broadcast(b, share), broadcast(b, scale)
    places = [address(b, x, at, c) for c in COLUMNS]
    rounded = [_rint(b, b.fmul(b.fmul(b.load(p, align=4), share), scale)) for p in places]
    for place, value in zip(places, rounded, strict=True):
        b.store(value, place, align=4)
    zero = ir.Constant(FLOATS, [0.0] * SIMD_WIDTH)
    return pack_mask(b, [b.fcmp_unordered("!=", value, zero) for value in rounded])


@instruction
def abs_row_sum(b: Any, x: Array, at: Index) -> Int32:
    """The sum of the magnitudes of 64 integers from x[at] on."""
    return _abs_sum(b, [b.load(address(b, x, at, c), align=4) for c in COLUMNS])


@instruction
def pack_row_pairs(b: Any, x: Array, at: Index, scale: Float32, pairs: Array, to: Index) -> None:
    """Two rows of 64, from x[at] on, times `scale` and rounded, as 64 int32 from pairs[to] on: the
    low half of each is a value of the first row, the high half that of the second. They fit 16
    bits."""
    scale = broadcast(b, scale)
    low, half = (ir.Constant(INTS, [v] * SIMD_WIDTH) for v in (0xFFFF, 16))
    for c in COLUMNS:
        rows = (b.load(address(b, x, at, c + by), align=4) for by in (0, N))
        one, two = (b.fptosi(_rint(b, b.fmul(row, scale)), INTS) for row in rows)
        both = b.or_(b.and_(one, low), b.shl(two, half))
        b.store(both, b.bitcast(address(b, pairs, to, c), INTS.as_pointer()), align=4)


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
    blocks = [(row, c) for row in range(4) for c in range(0, width, SIMD_WIDTH)]
    start, end, below = (ir.Constant(i.type, x) for x in (0, N * N // 2, N))
    rows = [b.add(i, ir.Constant(i.type, row)) for row in range(4)]

    def turn(at: Any, *totals: Any) -> Any:
        places = {c: address(b, pairs, b.add(at, j), c) for _, c in blocks}
        values = {c: b.load(b.bitcast(p, INTS.as_pointer()), align=4) for c, p in places.items()}
        factors = [broadcast(b, b.load(b.gep(pairs, [b.add(at, row)])), INTS) for row in rows]
        products = [_dot_pairs(b, factors[row], values[c]) for row, c in blocks]
        then = b.add(at, below)
        sums = [b.add(total, product) for total, product in zip(totals, products, strict=True)]
        return b.icmp_signed("<", then, end), (then, *sums)

    zeros = [ir.Constant(INTS, [0] * SIMD_WIDTH) for _ in blocks]
    _, *sums = repeat(b, (start, *zeros), turn)
    for (row, c), x in zip(blocks, sums, strict=True):
        place = b.add(b.mul(rows[row], below), j)
        yield b.add(place, ir.Constant(i.type, c)), b.sitofp(x, FLOATS)


def _gram_block(width: int) -> Any:
    @instruction
    def gram(b: Any, pairs: Array, i: Index, j: Index, target: Array) -> None:
        """Columns i … i + 3 times `width` columns from j on of 32 rows of 64 pairs, to these rows
        and columns of `target`, which has rows of 64."""
        for place, x in _block_product(b, pairs, i, j, width):
            b.store(x, address(b, target, place, 0), align=4)

    return gram


gram_16, gram_8 = _gram_block(16), _gram_block(8)


def _polynomial_block(width: int) -> Any:
    @instruction
    def polynomial(
        b: Any, pairs: Array, i: Index, j: Index, x: Array, scale: Float32, linear: Float32,
        higher: Float32, target: Array,
    ) -> None:  # fmt: skip
        """The same, times `higher`, plus these rows and columns of x, times `scale` and rounded,
        times `linear`; rounded."""
        scale, linear, higher = (broadcast(b, value) for value in (scale, linear, higher))
        for place, total in _block_product(b, pairs, i, j, width):
            here = _rint(b, b.fmul(b.load(address(b, x, place, 0), align=4), scale))
            made = _rint(b, b.fadd(b.fmul(here, linear), b.fmul(total, higher)))
            b.store(made, address(b, target, place, 0), align=4)

    return polynomial


polynomial_16, polynomial_8 = _polynomial_block(16), _polynomial_block(8)
