"""Reading a payload eight entries at a time: indices of 12 bits, which chunks of 4,096 have, and
signs of one bit. Both begin at a byte wherever k is a multiple of eight.
"""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.simd import (
    FLOATS,
    INTS,
    SIMD_WIDTH,
    Array,
    Index,
    Int64,
    broadcast,
    instruction,
    repeat,
)

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


@instruction
def last_if_ascending(b: Any, raw: Array, at: Index, k: Int64) -> Int64:
    """The last of k indices from byte `at` on; -1 if they do not rise."""
    number, word = ir.IntType(32), ir.IntType(64)
    order = ir.Constant(INTS, list(range(SIMD_WIDTH - 1, 2 * SIMD_WIDTH - 1)))

    def turn(done: Any, earlier: Any, wrong: Any) -> Any:
        byte = b.ashr(b.mul(done, ir.Constant(word, _WIDTH)), ir.Constant(word, 3))
        index = _unpack_indices(b, raw, b.add(at, byte))
        shifted = b.shuffle_vector(earlier, index, order)
        falls = b.or_(wrong, b.sext(b.icmp_signed("<=", index, shifted), _INDICES))
        then = b.add(done, ir.Constant(word, SIMD_WIDTH))
        return b.icmp_signed("<", then, k), (then, index, falls)

    none, nothing_wrong = (ir.Constant(_INDICES, [x] * SIMD_WIDTH) for x in (-1, 0))
    _, index, falls = repeat(b, (ir.Constant(word, 0), none, nothing_wrong), turn)
    all_bits = ir.IntType(16 * SIMD_WIDTH)
    fine = b.icmp_signed("==", b.bitcast(falls, all_bits), ir.Constant(all_bits, 0))
    last = b.zext(b.extract_element(index, ir.Constant(number, SIMD_WIDTH - 1)), word)
    return b.select(fine, last, ir.Constant(word, -1))


@instruction
def unpack_entries8(
    b: Any, raw: Array, at: Index, signs: Index, index: Array, value: Array, to: Index
) -> None:
    """Eight entries, the indices from byte `at` on and the signs in byte `signs`, to index[to] and
    value[to] on: uint16, and one or minus one."""
    place = b.bitcast(b.gep(index, [to]), _INDICES.as_pointer())
    b.store(_unpack_indices(b, raw, at), place, align=2)
    said = broadcast(b, b.zext(b.load(b.gep(raw, [signs])), ir.IntType(32)), INTS)
    sign_bits = ir.Constant(INTS, [1 << lane for lane in range(SIMD_WIDTH)])
    negative = b.icmp_signed("==", b.and_(said, sign_bits), sign_bits)
    values = b.select(negative, *(ir.Constant(FLOATS, [x] * SIMD_WIDTH) for x in (-1.0, 1.0)))
    b.store(values, b.bitcast(b.gep(value, [to]), FLOATS.as_pointer()), align=4)
