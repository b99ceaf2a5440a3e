"""Which of 64 values are not zero or reach a bar, as the bits of a word, and what to do with such
words. The first value is the lowest bit.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from folkmoot.learning.methods.distro.cpu.simd import (
    COLUMNS,
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


def pack_mask(b: Any, truths: list[Any]) -> Any:
    """Eight vectors of truths as one word."""
    found = ir.Constant(ir.IntType(64), 0)
    for c, which in zip(COLUMNS, truths, strict=True):
        bits = b.zext(b.bitcast(which, ir.IntType(SIMD_WIDTH)), ir.IntType(64))
        found = b.or_(found, b.shl(bits, ir.Constant(ir.IntType(64), c)))
    return found


@instruction
def popcount(b: Any, bits: Int64) -> Int64:
    """How many bits are set."""
    return b.ctpop(bits)


@instruction
def float_from_bits(b: Any, bits: Int32) -> Float32:
    """The float32 that has these bits."""
    return b.bitcast(bits, ir.FloatType())


@instruction
def lowest_bit(b: Any, bits: Int64) -> Int64:
    """The number of the lowest bit that is set, 0 if none is."""
    number = b.cttz(bits, ir.Constant(ir.IntType(1), 0))
    return b.and_(number, ir.Constant(number.type, N - 1))


def _magnitude(b: Any, data: Any, at: Any, by: int) -> Any:
    place = b.bitcast(address(b, data, at, by), INTS.as_pointer())
    return b.and_(b.load(place, align=4), ir.Constant(INTS, [0x7FFFFFFF] * SIMD_WIDTH))


@instruction
def block_maxima(b: Any, x: Array, first: Index, last: Index, out: Array, to: Index) -> None:
    """To out[to] and the seven after it: the largest bits without a sign among every eighth of
    x[first] … x[last - 1]. Both arrays are int32; a block of 64 is taken at a time."""

    def turn(at: Any, found: Any) -> Any:
        maxima = [_magnitude(b, x, at, c) for c in COLUMNS]
        while len(maxima) > 1:
            maxima = [_max(b, *maxima[i : i + 2]) for i in range(0, len(maxima), 2)]
        then = b.add(at, ir.Constant(at.type, N))
        return b.icmp_signed("<", then, last), (then, _max(b, found, maxima[0]))

    _, top = repeat(b, (first, ir.Constant(INTS, [0] * SIMD_WIDTH)), turn)
    b.store(top, b.bitcast(address(b, out, to, 0), INTS.as_pointer()), align=4)


def _max(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed(">", x, y), x, y)


@instruction
def mask_at_least(b: Any, x: Array, at: Index, threshold: Int32) -> Int64:
    """Which of the 64 int32 from x[at] on reach a bar, signs left out: a bit each."""
    bar = broadcast(b, threshold, INTS)
    return pack_mask(b, [b.icmp_signed(">=", _magnitude(b, x, at, c), bar) for c in COLUMNS])
