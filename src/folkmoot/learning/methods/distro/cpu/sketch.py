"""Sketches of payloads (methods/sketch.py), compiled, with the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.core.coordinator.client.screening import SUMS
from folkmoot.learning.methods import sketch as meaning
from folkmoot.learning.methods.distro import wire
from folkmoot.learning.methods.distro.cpu.bitmask import float_from_bits
from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.packing import read_bits
from folkmoot.learning.methods.distro.plan import Plan

_FACTOR = np.uint64(0xFF51AFD7ED558CCD)
_HALF, _SIGN = np.uint64(33), np.uint64(63)
_SHIFT = np.uint64(63 - (SUMS - 1).bit_length())
_MASK = np.uint64(SUMS - 1)


@compiled
def _add_chunks(
    raw: Any, silent: int, indices: int, amplitudes: int, count: int, k: int, index_bits: int,
    bits: int, size: int, start: int, sums: Any,
) -> float:  # fmt: skip
    """Add all that a group says, every chunk with the same energy; the squares of what it said."""
    said = np.empty(k, np.float32)
    whole = 0.0
    for chunk in range(count):
        if read_bits(raw, silent * 8 + chunk, 1):
            continue
        squares = 0.0
        for j in range(k):
            code = read_bits(raw, amplitudes * 8 + (chunk * k + j) * bits, bits)
            if bits == 1:
                said[j] = np.float32(1 - 2 * code)
            else:
                said[j] = float_from_bits(np.int32(code << 16))
            squares += np.float64(said[j]) * np.float64(said[j])
        whole += squares
        factor = np.sqrt(k / squares) if bits == 16 and squares > 0 else 1.0
        for j in range(k):
            bit = indices * 8 + (chunk * k + j) * index_bits
            place = read_bits(raw, bit, index_bits) if index_bits else j
            mixed = np.uint64(start + chunk * size + place)
            mixed ^= mixed >> _HALF
            mixed *= _FACTOR
            mixed ^= mixed >> _HALF
            mixed *= _FACTOR
            value = np.float64(np.float32(np.float64(said[j]) * factor))
            sums[np.int64((mixed >> _SHIFT) & _MASK)] += -value if mixed >> _SIGN else value
    return whole


def sketch(plan: Plan, payload: bytes) -> bytes:
    raw, sums, squares = np.frombuffer(payload, np.uint8), meaning.empty_sums(), 0.0
    for g, at in zip(plan.groups, wire.sections(plan), strict=True):
        squares += _add_chunks(
            raw, at.silent, at.indices, at.amplitudes, g.count, g.k, g.index_bits, plan.bits,
            g.size, g.start, sums,
        )  # fmt: skip
    return meaning.encode(sums, squares)
