"""The payload of one DisTrO contribution, version 1 (docs/distro.md has the picture).

    "FD", version, bits per amplitude           4 bytes
    fingerprint of the plan                     8 bytes
    then for each group of chunks, each part padded with zero bits to a whole byte:
      silent      1 bit a chunk: nothing to say here (its indices are then 0, 1, 2, … and its
                  amplitudes zero bits)
      indices     index_bits each, k a chunk, strictly ascending
      amplitudes  1 bit each (set: −1, clear: +1) or a bfloat16 each

Bits fill bytes from the lowest up; numbers are little-endian. The plan fixes the length, which is
compared before anything is decoded; equal contributions have equal bytes.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from folkmoot.learning.methods.bfloat16 import Floats, from_bfloat16, to_bfloat16
from folkmoot.learning.methods.distro.plan import Group, Plan
from folkmoot.learning.methods.frame import HEADER
from folkmoot.learning.methods.protocol import Refusal

Bytes = npt.NDArray[np.uint8]
Indices = npt.NDArray[np.int32]

MAGIC = b"FD"
VERSION = 1
_EXPONENT_LIMIT = 127 + 40


class GroupOffsets(msgspec.Struct, frozen=True):
    """Where one group's three parts start in a payload, in bytes."""

    silent: int
    indices: int
    amplitudes: int
    end: int


def sections(plan: Plan) -> list[GroupOffsets]:
    at, found = HEADER, []
    for g in plan.groups:
        indices = at + (g.count + 7) // 8
        amplitudes = indices + (g.count * g.k * g.index_bits + 7) // 8
        end = amplitudes + (g.count * g.k * plan.bits + 7) // 8
        found.append(GroupOffsets(at, indices, amplitudes, end))
        at = end
    return found


def payload_size(plan: Plan) -> int:
    return sections(plan)[-1].end if plan.groups else HEADER


def header(plan: Plan) -> bytes:
    return MAGIC + bytes([VERSION, plan.bits]) + plan.fingerprint


def _put_bits(values: npt.NDArray[np.int32], width: int) -> Bytes:
    shifts = np.arange(width, dtype=np.int32)
    bits = (values.reshape(-1, 1) >> shifts) & 1
    return np.packbits(bits.astype(np.uint8).reshape(-1), bitorder="little")


def _get_bits(packed: Bytes, count: int, width: int) -> Indices:
    bits = np.unpackbits(packed, bitorder="little")[: count * width].reshape(count, width)
    values: Indices = (bits.astype(np.int32) << np.arange(width)).sum(1, dtype=np.int32)
    return values


def pack(plan: Plan, index: Indices, value: Floats) -> bytes:
    """`index` and `value` hold the entries group by group, chunk by chunk, indices ascending."""
    parts: list[bytes] = [header(plan)]
    for g in plan.groups:
        where = slice(g.entry, g.entry + g.count * g.k)
        values = value[where].reshape(g.count, g.k)
        silent = np.all(values == 0, axis=1)
        indices = np.where(
            silent.reshape(-1, 1), np.arange(g.k), index[where].reshape(g.count, g.k)
        )
        parts.append(np.packbits(silent, bitorder="little").tobytes())
        parts.append(_put_bits(indices.astype(np.int32), g.index_bits).tobytes())
        if plan.bits == 1:
            parts.append(np.packbits(values < 0, bitorder="little").tobytes())
        else:
            parts.append((to_bfloat16(values + 0.0)).astype("<u2").tobytes())
    return b"".join(parts)


def unpack(plan: Plan, payload: bytes) -> tuple[Indices, Floats]:
    """Entries of a payload that passed `check`; what silent chunks say is 0."""
    raw = np.frombuffer(payload, np.uint8)
    index, value = np.empty(plan.entries, np.int32), np.empty(plan.entries, np.float32)
    for g, at in zip(plan.groups, sections(plan), strict=True):
        where = slice(g.entry, g.entry + g.count * g.k)
        index[where] = _group_indices(raw, g, at).reshape(-1)
        amplitudes = raw[at.amplitudes : at.end]
        if plan.bits == 1:
            bits = np.unpackbits(amplitudes, bitorder="little")[: g.count * g.k]
            said = 1.0 - 2.0 * bits.astype(np.float32)
        else:
            said = from_bfloat16(amplitudes.view("<u2"))
        silent = np.unpackbits(raw[at.silent : at.indices], bitorder="little")[: g.count]
        value[where] = np.where(silent.repeat(g.k) == 1, np.float32(0), said)
    return index, value


def _group_indices(raw: Bytes, g: Group, at: GroupOffsets) -> Indices:
    if g.index_bits == 0:
        return np.broadcast_to(np.arange(g.k, dtype=np.int32), (g.count, g.k))
    return _get_bits(raw[at.indices : at.amplitudes], g.count * g.k, g.index_bits).reshape(
        g.count, g.k
    )


def check_body(plan: Plan, payload: bytes) -> Refusal | None:
    """Everything after the frame of a payload that passed `frame.check_frame`."""
    raw = np.frombuffer(payload, np.uint8)
    for g, at in zip(plan.groups, sections(plan), strict=True):
        if (refusal := _check_group(plan, raw, g, at)) is not None:
            return refusal
    return None


def check_padding(plan: Plan, raw: Bytes, g: Group, at: GroupOffsets) -> Refusal | None:
    entries = g.count * g.k
    for end, used in (
        (at.indices, g.count),
        (at.amplitudes, entries * g.index_bits),
        (at.end, entries * plan.bits),
    ):
        if used % 8 and raw[end - 1] >> (used % 8):
            where = f"chunks of {g.h} × {g.w}"
            return Refusal("padding", f"{where}: unused bits before byte {end} are not zero")
    return None


def _check_group(plan: Plan, raw: Bytes, g: Group, at: GroupOffsets) -> Refusal | None:
    where = f"chunks of {g.h} × {g.w}"
    if (refusal := check_padding(plan, raw, g, at)) is not None:
        return refusal
    indices = _group_indices(raw, g, at)
    if indices.size and int(indices.max()) >= g.size:
        return Refusal("index", f"{where}: index {int(indices.max())} is out of range")
    if (np.diff(indices, axis=1) <= 0).any():
        return Refusal("index", f"{where}: indices of a chunk do not ascend")
    amplitudes = raw[at.amplitudes : at.end]
    if plan.bits == 16:
        said = amplitudes.view("<u2")
        if (((said >> 7) & 0xFF) > _EXPONENT_LIMIT).any():
            return Refusal("amplitude", f"{where}: an amplitude is not finite or beyond 2^40")
    else:
        said = np.unpackbits(amplitudes, bitorder="little")[: g.count * g.k]
    silent = np.unpackbits(raw[at.silent : at.indices], bitorder="little")[: g.count] == 1
    wrong = (said.reshape(g.count, g.k) != 0) | (indices != np.arange(g.k))
    if wrong[silent].any():
        return Refusal("silent", f"{where}: a silent chunk says something")
    return None
