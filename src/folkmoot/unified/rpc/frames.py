"""Frames on a stream: a header in msgpack, then the bytes of its parts where they are.

    4 bytes    length of the header
    8 bytes    length of the payload
    header     msgpack: kind, number of the call, method, lengths of the parts
    payload    the parts, each begun at a multiple of 16 bytes, so that arrays can be used in place
    16 bytes   over TCP only: the seal of all of this (`handshake.Seal`)

Both lengths are bounded before a byte more is read, and the seal is checked before the header is
decoded. Sockets are elsewhere: `FrameReader` says where the next bytes go and gives what is whole.
"""

import hmac
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.unified.rpc.errors import FrameError
from folkmoot.unified.rpc.handshake import SEAL, Buffer, Seal

PREFIX = struct.Struct("<IQ")
MAX_HEADER = 64 * 1024
MAX_PAYLOAD = 4 * 1024**3
MAX_METHOD = 1024
ALIGNMENT = 16
# Less than this is copied into one piece: a system call with many pieces costs more.
SMALL = 16 * 1024
BUFFER = 256 * 1024


class Kind(IntEnum):
    Hello = 0
    Call = 1
    Result = 2
    Error = 3


class FrameHeader(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    kind: Kind
    call: int
    method: str
    sizes: tuple[int, ...]


class RpcFrame(NamedTuple):
    header: FrameHeader
    parts: list[memoryview]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(FrameHeader)


def encode(kind: Kind, call: int, method: str, parts: Sequence[Buffer]) -> list[Buffer]:
    """The pieces of a frame, one after the other; large parts are not copied."""
    sizes = tuple(len(part) for part in parts)
    if (length := sum(map(_padded, sizes))) > MAX_PAYLOAD:
        raise FrameError(f"{method}: {length} bytes in one call; at most {MAX_PAYLOAD} are sent")
    if len(method) > MAX_METHOD:
        raise FrameError(f"a method's name has at most {MAX_METHOD} characters")
    header = _encoder.encode((int(kind), call, method, sizes))
    if len(header) > MAX_HEADER:
        raise FrameError(f"{method}: {len(sizes)} parts are too many for one call")
    small = bytearray(PREFIX.pack(len(header), length) + header)
    pieces: list[Buffer] = []
    for part, size in zip(parts, sizes, strict=True):
        if size < SMALL:
            small += part
        else:
            pieces += [small, part]
            small = bytearray()
        small += bytes(_padded(size) - size)
    return [piece for piece in (*pieces, small) if len(piece)]


class FrameReader:
    """`space()` is where received bytes go; `received(count)` gives the frames they completed."""

    def __init__(self, seal: Seal | None = None, max_payload: int = MAX_PAYLOAD) -> None:
        self._seal = seal
        self._trailer = SEAL if seal else 0
        self._max_payload = max_payload
        self._buffer = memoryview(bytearray(BUFFER))
        self._start = self._end = 0
        self._head = b""  # prefix and header of the frame whose payload is being read
        self._payload: memoryview | None = None
        self._filled = 0

    def space(self) -> memoryview:
        if self._payload is not None and self._filled < len(self._payload):
            return self._payload[self._filled :]
        if self._start:  # what is left is less than a head, or less than a seal: cheap to move
            rest = self._end - self._start
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest
        return self._buffer[self._end :]

    def received(self, count: int) -> Iterator[RpcFrame]:
        if self._payload is not None and self._filled < len(self._payload):
            self._filled += count
        else:
            self._end += count
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> RpcFrame | None:
        if self._payload is None and not self._begin():
            return None
        assert self._payload is not None
        if self._filled < len(self._payload):
            taken = self._take(min(len(self._payload) - self._filled, self._end - self._start))
            self._payload[self._filled : self._filled + len(taken)] = taken
            self._filled += len(taken)
        if self._filled < len(self._payload) or self._end - self._start < self._trailer:
            return None
        payload, self._payload = self._payload, None
        if self._seal is not None:
            expected = self._seal.of((self._head, payload))
            if not hmac.compare_digest(bytes(self._take(SEAL)), expected):
                raise FrameError("a frame's seal is wrong: it was changed on the way")
        return _frame(self._head[PREFIX.size :], payload)

    def _begin(self) -> bool:
        """Whether a head is there; then there is room for its payload."""
        there = self._end - self._start
        if there < PREFIX.size:
            return False
        header, payload = PREFIX.unpack_from(self._buffer, self._start)
        if header > MAX_HEADER or payload > self._max_payload:
            raise FrameError(f"a frame of {header} + {payload} bytes is larger than is taken")
        if there < PREFIX.size + header:
            return False
        self._head = bytes(self._take(PREFIX.size + header))
        self._payload, self._filled = memoryview(bytearray(payload)), 0
        return True

    def _take(self, count: int) -> memoryview:
        self._start += count
        return self._buffer[self._start - count : self._start]


def _frame(encoded: bytes, payload: memoryview) -> RpcFrame:
    try:
        header = _decoder.decode(encoded)
    except UNREADABLE as error:
        raise FrameError(f"a frame's header cannot be read: {error}") from None
    parts, at = [], 0
    for size in header.sizes:
        if size < 0 or at + size > len(payload):
            raise FrameError("a frame's parts do not fit into its payload")
        parts.append(payload[at : at + size])
        at += _padded(size)
    if at != len(payload):
        raise FrameError("a frame's parts do not fill its payload")
    return RpcFrame(header, parts)


def _padded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
