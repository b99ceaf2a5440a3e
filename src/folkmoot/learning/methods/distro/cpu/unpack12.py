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
from folkmoot.learning.methods.distro.cpu.simd import FLOATS, INTS, SIMD_WIDTH, broadcast, pointers

_BYTE, _INDEX = ir.IntType(8), ir.IntType(16)
_INDICES = ir.VectorType(_INDEX, SIMD_WIDTH)
_WIDTH = 12
_LITTLE_ENDIAN = sys.byteorder == "little"
_READ = 16
"""Bytes that reading eight indices touches."""


@compiled
def can_unpack12(raw: Any, index_bits: int, k: int, at: int) -> bool:
    """Whether the k indices from byte `at` on can be read so, by a processor that has a number's
    lowest byte first."""
    fits = index_bits == _WIDTH and k % SIMD_WIDTH == 0
    return _LITTLE_ENDIAN and fits and at + (k * 3 >> 1) + 4 <= raw.size


def _unpack_indices(b: Any, raw: Any, at: Any) -> Any:
    """The eight indices that begin at byte `at`.

    Each has its bits in two bytes: the even ones in the lower twelve bits, the odd in the upper."""
    sixteen = ir.VectorType(_BYTE, _READ)
    found = b.load(b.bitcast(b.gep(raw, [at]), sixteen.as_pointer()), align=1)
    order = [first + n for first in range(0, _WIDTH, 3) for n in (0, 1, 1, 2)]
    mask = ir.Constant(ir.VectorType(ir.IntType(32), _READ), order)
    pairs = b.bitcast(b.shuffle_vector(found, found, mask), _INDICES)
    up, down = [4, 0] * (SIMD_WIDTH // 2), [4] * SIMD_WIDTH
    return b.lshr(b.shl(pairs, ir.Constant(_INDICES, up)), ir.Constant(_INDICES, down))


def _last_if_ascending(typing: Any, raw: Any, at: Any, k: Any) -> Any:
    """The last of k indices from byte `at` on; -1 if they do not rise."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        (raw,) = pointers(context, b, sig, args, (0,))
        number, word = ir.IntType(32), ir.IntType(64)
        before, loop, after = b.block, b.append_basic_block("each"), b.append_basic_block("done")
        b.branch(loop)
        b.position_at_end(loop)
        done, earlier, wrong = b.phi(word), b.phi(_INDICES), b.phi(_INDICES)
        byte = b.ashr(b.mul(done, ir.Constant(word, _WIDTH)), ir.Constant(word, 3))
        index = _unpack_indices(b, raw, b.add(args[1], byte))
        order = ir.Constant(
            ir.VectorType(number, SIMD_WIDTH), list(range(SIMD_WIDTH - 1, 2 * SIMD_WIDTH - 1))
        )
        shifted = b.shuffle_vector(earlier, index, order)
        falls = b.or_(wrong, b.sext(b.icmp_signed("<=", index, shifted), _INDICES))
        then = b.add(done, ir.Constant(word, SIMD_WIDTH))
        b.cbranch(b.icmp_signed("<", then, args[2]), loop, after)
        for phi, start, again in (
            (done, ir.Constant(word, 0), then),
            (earlier, ir.Constant(_INDICES, [-1] * SIMD_WIDTH), index),
            (wrong, ir.Constant(_INDICES, [0] * SIMD_WIDTH), falls),
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(again, loop)
        b.position_at_end(after)
        all_bits = ir.IntType(16 * SIMD_WIDTH)
        fine = b.icmp_signed("==", b.bitcast(falls, all_bits), ir.Constant(all_bits, 0))
        last = b.zext(b.extract_element(index, ir.Constant(number, SIMD_WIDTH - 1)), word)
        return b.select(fine, last, ir.Constant(word, -1))

    return types.int64(raw, types.intp, types.int64), codegen


last_if_ascending: Any = intrinsic(_last_if_ascending)


def _unpack_entries8(
    typing: Any, raw: Any, at: Any, signs: Any, index: Any, value: Any, to: Any
) -> Any:
    """Eight entries, the indices from byte `at` on and the signs in byte `signs`, to places[to] and
    ones[to] on: uint16, and one or minus one."""

    def codegen(context: Any, b: Any, sig: Any, args: Any) -> Any:
        raw, index, value = pointers(context, b, sig, args, (0, 3, 4))
        place = b.bitcast(b.gep(index, [args[5]]), _INDICES.as_pointer())
        b.store(_unpack_indices(b, raw, args[1]), place, align=2)
        said = broadcast(b, b.zext(b.load(b.gep(raw, [args[2]])), ir.IntType(32)), INTS)
        sign_bits = ir.Constant(INTS, [1 << lane for lane in range(SIMD_WIDTH)])
        negative = b.icmp_signed("==", b.and_(said, sign_bits), sign_bits)
        values = b.select(
            negative,
            ir.Constant(FLOATS, [-1.0] * SIMD_WIDTH),
            ir.Constant(FLOATS, [1.0] * SIMD_WIDTH),
        )
        place = b.bitcast(b.gep(value, [args[5]]), FLOATS.as_pointer())
        b.store(values, place, align=4)
        return context.get_dummy_value()

    intp = types.intp
    return types.void(raw, intp, intp, index, value, intp), codegen


unpack_entries8: Any = intrinsic(_unpack_entries8)
