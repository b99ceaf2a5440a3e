"""Which of 64 values are not zero or reach a bar, as the bits of a word, and what to do with such
words. The first value is the lowest bit.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from folkmoot.learning.methods.distro.cpu.simd import (
    COLUMNS,
    INTS,
    SIMD_WIDTH,
    N,
    address,
    broadcast,
    pointers,
)


def pack_mask(b: Any, truths: list[Any]) -> Any:
    """Eight vectors of truths as one word."""
    found = ir.Constant(ir.IntType(64), 0)
    for c, which in zip(COLUMNS, truths, strict=True):
        bits = b.zext(b.bitcast(which, ir.IntType(SIMD_WIDTH)), ir.IntType(64))
        found = b.or_(found, b.shl(bits, ir.Constant(ir.IntType(64), c)))
    return found


def _popcount(typing: Any, bits: Any) -> Any:
    """How many bits are set."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.ctpop(args[0])

    return types.int64(types.int64), codegen


popcount: Any = intrinsic(_popcount)


def _float_from_bits(typing: Any, bits: Any) -> Any:
    """The float32 that has these bits."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


float_from_bits: Any = intrinsic(_float_from_bits)


def _lowest_bit(typing: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set, 0 if none is."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        number = b.cttz(args[0], ir.Constant(ir.IntType(1), 0))
        return b.and_(number, ir.Constant(number.type, N - 1))

    return types.int64(types.int64), codegen


lowest_bit: Any = intrinsic(_lowest_bit)


def _magnitude(b: Any, data: Any, at: Any, by: int) -> Any:
    place = b.bitcast(address(b, data, at, by), INTS.as_pointer())
    return b.and_(b.load(place, align=4), ir.Constant(INTS, [0x7FFFFFFF] * SIMD_WIDTH))


def _block_maxima(typing: Any, x: Any, first: Any, last: Any, out: Any, to: Any) -> Any:
    """To out[to] and the seven after it: the largest bits without a sign among every eighth of
    x[first] … x[last - 1]. Both arrays are int32; a block of 64 is taken at a time."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        x, out = pointers(context, b, sig, args, (0, 3))
        before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        at, found = b.phi(args[1].type), b.phi(INTS)
        maxima = [_magnitude(b, x, at, c) for c in COLUMNS]
        while len(maxima) > 1:
            maxima = [_max(b, *maxima[i : i + 2]) for i in range(0, len(maxima), 2)]
        top = _max(b, found, maxima[0])
        then = b.add(at, ir.Constant(at.type, N))
        b.cbranch(b.icmp_signed("<", then, args[2]), loop, after)
        for phi, start, again in ((at, args[1], then), (found, ir.Constant(INTS, [0] * 8), top)):
            phi.add_incoming(start, before)
            phi.add_incoming(again, loop)
        b.position_at_end(after)
        place = b.bitcast(address(b, out, args[4], 0), INTS.as_pointer())
        b.store(top, place, align=4)
        return context.get_dummy_value()

    intp = types.intp
    return types.void(x, intp, intp, out, intp), codegen


block_maxima: Any = intrinsic(_block_maxima)


def _max(b: Any, x: Any, y: Any) -> Any:
    return b.select(b.icmp_signed(">", x, y), x, y)


def _mask_at_least(typing: Any, x: Any, at: Any, threshold: Any) -> Any:
    """Which of the 64 int32 from x[at] on reach a bar, signs left out: a bit each."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (data,) = pointers(context, b, sig, args, (0,))
        threshold = broadcast(b, args[2], INTS)
        values = [_magnitude(b, data, args[1], c) for c in COLUMNS]
        return pack_mask(b, [b.icmp_signed(">=", x, threshold) for x in values])

    return types.int64(x, types.intp, types.int32), codegen


mask_at_least: Any = intrinsic(_mask_at_least)
