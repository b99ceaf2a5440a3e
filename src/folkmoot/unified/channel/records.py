"""A record as bytes: its pickle, or its pickle with the arrays of it behind, to be used in place.

    plain   a pickle
    packed  a zero byte, then the lengths of the parts, then the parts, each at a multiple of 64
    bytes   a byte of one, then themselves: half of a pickle's time

The first byte tells them apart: no pickle of protocol 5 begins with zero or one.
"""

import functools
import pickle
import struct
from collections.abc import Sequence
from typing import Any

from folkmoot.unified.rpc import values

Buffer = bytes | bytearray | memoryview
ALIGNMENT = 64  # of a cache line; the largest that numpy or torch like
PLAIN = frozenset({str, int, float, bool, type(None)})  # nothing to be kept beside them
PACKED, BYTES = 0, 1  # first bytes
_BYTES = bytes([BYTES])
SMALL = 16 * 1024  # bytes up to here are copied, since pieces are not free
_COUNT = struct.Struct("<xxxxI")  # the zero byte, with three more


def encode(record: object) -> list[Buffer]:
    """The bytes of a record, in pieces; arrays are not copied, so write them out soon."""
    if type(record) is bytes:
        return [_BYTES + record] if len(record) < SMALL else [_BYTES, record]
    if type(record) in PLAIN:
        return [pickle.dumps(record, 5)]
    parts = values.dump(record)
    return list(parts) if len(parts) == 1 else _pack(parts)


def decode(encoded: memoryview, begin: int, end: int, copy: bool = False) -> Any:
    """The record that lies there; its arrays use the memory of `encoded`, or a copy."""
    kind = encoded[begin]
    if kind == BYTES:
        return encoded[begin + 1 : end].tobytes()
    if kind == PACKED:
        record = encoded[begin:end]
        return values.load(_unpack(memoryview(bytearray(record)) if copy else record))
    return pickle.loads(encoded[begin:end])


def _pack(parts: Sequence[Buffer]) -> list[Buffer]:
    """What is small in one piece, since pieces are not free, and each array as it is."""
    small = bytearray(_head(len(parts)).pack(len(parts), *map(len, parts)))
    small += bytes(-len(small) % ALIGNMENT) + parts[0]
    pieces: list[Buffer] = []
    before = len(parts[0])
    for part in parts[1:]:
        small += bytes(-before % ALIGNMENT)
        before = len(part)
        pieces += [small, part] if small else [part]
        small = bytearray()
    return pieces


def _unpack(encoded: memoryview) -> list[memoryview]:
    (count,) = _COUNT.unpack_from(encoded)
    head = _head(count)
    _, *sizes = head.unpack_from(encoded)
    at = _aligned(head.size)
    parts = []
    for size in sizes:
        parts.append(encoded[at : at + size])
        at += _aligned(size)
    return parts


@functools.lru_cache(64)
def _head(count: int) -> struct.Struct:
    return struct.Struct(f"<xxxxI{count}Q")


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
