"""Reading a payload eight entries at a time: indices of 12 bits, which chunks of 4,096 have, and
signs of one bit. Both begin at a byte wherever k is a multiple of eight.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.simd import LANES, VECTOR, WHOLE, data_of, spread

_BYTE, _PLACE = ir.IntType(8), ir.IntType(16)
_PLACES = ir.VectorType(_PLACE, LANES)
_WIDTH = 12
_LOWEST_FIRST = sys.byteorder == "little"
_READ = 16
"""Bytes that reading eight indices touches."""


@compiled
def in_eights(raw: Any, index_bits: int, k: int, at: int) -> bool:
    """Whether the k indices from byte `at` on can be read so, by a processor that has a number's
    lowest byte first."""
    fits = index_bits == _WIDTH and k % LANES == 0
    return _LOWEST_FIRST and fits and at + (k * 3 >> 1) + 4 <= raw.size


def _places(b: Any, raw: Any, at: Any) -> Any:
    """The eight indices that begin at byte `at`.

    Each has its bits in two bytes: the even ones in the lower twelve bits, the odd in the upper."""
    sixteen = ir.VectorType(_BYTE, _READ)
    found = b.load(b.bitcast(b.gep(raw, [at]), sixteen.as_pointer()), align=1)
    order = [first + n for first in range(0, _WIDTH, 3) for n in (0, 1, 1, 2)]
    mask = ir.Constant(ir.VectorType(ir.IntType(32), _READ), order)
    pairs = b.bitcast(b.shuffle_vector(found, found, mask), _PLACES)
    up, down = [4, 0] * (LANES // 2), [4] * LANES
    return b.lshr(b.shl(pairs, ir.Constant(_PLACES, up)), ir.Constant(_PLACES, down))


def _last_of_rising(typing: Any, raw: Any, at: Any, k: Any) -> Any:
    """The last of k indices from byte `at` on; -1 if they do not rise."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (raw,) = data_of(context, b, sig, args, (0,))
        number, word = ir.IntType(32), ir.IntType(64)
        before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        done, earlier, wrong = b.phi(word), b.phi(_PLACES), b.phi(_PLACES)
        byte = b.ashr(b.mul(done, ir.Constant(word, _WIDTH)), ir.Constant(word, 3))
        places = _places(b, raw, b.add(args[1], byte))
        order = ir.Constant(ir.VectorType(number, LANES), list(range(LANES - 1, 2 * LANES - 1)))
        shifted = b.shuffle_vector(earlier, places, order)
        falls = b.or_(wrong, b.sext(b.icmp_signed("<=", places, shifted), _PLACES))
        then = b.add(done, ir.Constant(word, LANES))
        b.cbranch(b.icmp_signed("<", then, args[2]), loop, after)
        for phi, start, again in (
            (done, ir.Constant(word, 0), then),
            (earlier, ir.Constant(_PLACES, [-1] * LANES), places),
            (wrong, ir.Constant(_PLACES, [0] * LANES), falls),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(again, loop)
        b.position_at_end(after)
        whole = ir.IntType(16 * LANES)
        fine = b.icmp_signed("==", b.bitcast(falls, whole), ir.Constant(whole, 0))
        last = b.zext(b.extract_element(places, ir.Constant(number, LANES - 1)), word)
        return b.select(fine, last, ir.Constant(word, -1))

    return types.int64(raw, types.intp, types.int64), codegen


last_of_rising: Any = intrinsic(_last_of_rising)


def _entries8(typing: Any, raw: Any, at: Any, signs: Any, places: Any, ones: Any, to: Any) -> Any:
    """Eight entries, the indices from byte `at` on and the signs in byte `signs`, to places[to] and
    ones[to] on: uint16, and one or minus one."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        raw, places, ones = data_of(context, b, sig, args, (0, 3, 4))
        place = b.bitcast(b.gep(places, [args[5]]), _PLACES.as_pointer())
        b.store(_places(b, raw, args[1]), place, align=2)
        said = spread(b, b.zext(b.load(b.gep(raw, [args[2]])), ir.IntType(32)), WHOLE)
        each = ir.Constant(WHOLE, [1 << lane for lane in range(LANES)])
        negative = b.icmp_signed("==", b.and_(said, each), each)
        values = b.select(
            negative, ir.Constant(VECTOR, [-1.0] * LANES), ir.Constant(VECTOR, [1.0] * LANES)
        )
        place = b.bitcast(b.gep(ones, [args[5]]), VECTOR.as_pointer())
        b.store(values, place, align=4)
        return context.get_dummy_value()

    whole = types.intp
    return types.void(raw, whole, whole, places, ones, whole), codegen


entries8: Any = intrinsic(_entries8)
