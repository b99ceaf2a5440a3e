"""wire.py's packing, checking and reading of payloads, compiled. Same bytes, same refusals.

A payload is small beside the model, so packing and checking run in one thread; reading is done
chunk by chunk inside the kernel that sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from folkmoot.learning.methods.bfloat16 import Floats, to_bfloat16
from folkmoot.learning.methods.distro import wire
from folkmoot.learning.methods.distro.cpu.jit import compiled
from folkmoot.learning.methods.distro.cpu.simd import load_word
from folkmoot.learning.methods.distro.cpu.unpack12 import can_unpack12, last_if_ascending
from folkmoot.learning.methods.distro.plan import Plan
from folkmoot.learning.methods.distro.wire import Indices
from folkmoot.learning.methods.frame import HEADER
from folkmoot.learning.methods.protocol import Refusal


@compiled
def _write_bits(raw: Any, bit: int, width: int, value: int) -> None:
    """Set bits that are still zero."""
    while width > 0:
        shift = bit % 8
        raw[bit // 8] |= np.uint8((value << shift) & 0xFF)
        value >>= 8 - shift
        width -= 8 - shift
        bit += 8 - shift


@compiled
def read_bits(raw: Any, bit: int, width: int) -> Any:
    """Up to 25 bits of four bytes or more. Near the end, the last four bytes are read."""
    at = min(bit >> 3, raw.size - 4)
    return (load_word(raw, at) >> (bit - 8 * at)) & ((1 << width) - 1)


@compiled
def read_bits_inside(raw: Any, bit: int, width: int) -> Any:
    """The same, a little faster, where four bytes follow."""
    return (load_word(raw, bit >> 3) >> (bit & 7)) & ((1 << width) - 1)


@compiled
def is_inside(raw: Any, bit: int) -> bool:
    return (bit >> 3) + 4 <= raw.size


@compiled
def _pack_group(
    raw: Any, silent: int, indices: int, amplitudes: int, count: int, k: int, index_bits: int,
    bits: int, index: Any, value: Any, coded: Any,
) -> None:  # fmt: skip
    for chunk in range(count):
        entries = range(chunk * k, (chunk + 1) * k)
        quiet = True
        for e in entries:
            quiet &= value[e] == 0
        _write_bits(raw, silent * 8 + chunk, 1, 1 if quiet else 0)
        for e in entries:
            place = e - chunk * k if quiet else index[e]
            _write_bits(raw, indices * 8 + e * index_bits, index_bits, place)
            code = coded[e] if bits == 16 else (1 if value[e] < 0 else 0)
            _write_bits(raw, amplitudes * 8 + e * bits, bits, code)


def pack(plan: Plan, index: Indices, value: Floats) -> bytes:
    raw = np.zeros(wire.payload_size(plan), np.uint8)
    raw[:HEADER] = np.frombuffer(wire.header(plan), np.uint8)
    coded = to_bfloat16(value + np.float32(0)) if plan.bits == 16 else np.zeros(0, np.uint16)
    for g, at in zip(plan.groups, wire.sections(plan), strict=True):
        where = slice(g.entry, g.entry + g.count * g.k)
        _pack_group(
            raw, at.silent, at.indices, at.amplitudes, g.count, g.k, g.index_bits,
            plan.bits, index[where], value[where], coded[where],
        )  # fmt: skip
    return raw.tobytes()


@compiled
def _ascending(raw: Any, first: int, index_bits: int, k: int, size: int) -> bool:
    """Whether k indices, the first at bit `first`, rise and stay below `size`.

    Looked at to the end in any case: without a way out, a loop is faster."""
    if can_unpack12(raw, index_bits, k, first >> 3):
        return 0 <= last_if_ascending(raw, first >> 3, k) < size
    before, wrong = -1, False
    inside = is_inside(raw, first + k * index_bits)
    for e in range(k):
        bit = first + e * index_bits
        place = (
            read_bits_inside(raw, bit, index_bits) if inside else read_bits(raw, bit, index_bits)
        )
        wrong |= place <= before
        before = place
    return not wrong and before < size


@compiled
def _check_group(
    raw: Any, silent: int, indices: int, amplitudes: int, count: int, k: int, index_bits: int,
    bits: int, size: int,
) -> bool:  # fmt: skip
    for chunk in range(count):
        quiet = (raw[silent + (chunk >> 3)] >> (chunk & 7)) & 1
        if bits == 1 and index_bits and not quiet:
            if not _ascending(raw, indices * 8 + chunk * k * index_bits, index_bits, k, size):
                return False
            continue
        before = -1
        for e in range(chunk * k, (chunk + 1) * k):
            place = (
                read_bits(raw, indices * 8 + e * index_bits, index_bits)
                if index_bits
                else before + 1
            )
            said = read_bits(raw, amplitudes * 8 + e * bits, bits) if quiet or bits == 16 else 0
            if place >= size or place <= before or (bits == 16 and (said >> 7) & 0xFF > 167):
                return False
            if quiet and (said != 0 or place != before + 1):
                return False
            before = place
    return True


def check_body(plan: Plan, payload: bytes) -> Refusal | None:
    """As wire.check_body, which is asked for the sentence when something is wrong."""
    raw = np.frombuffer(payload, np.uint8)
    for g, at in zip(plan.groups, wire.sections(plan), strict=True):
        fine = _check_group(
            raw, at.silent, at.indices, at.amplitudes, g.count, g.k, g.index_bits, plan.bits, g.size
        )
        if not fine or wire.check_padding(plan, raw, g, at) is not None:
            return wire.check_body(plan, payload)
    return None
