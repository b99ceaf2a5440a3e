"""Frames of the lines that carry weights: a length, then a message; bounded before it is read."""

from __future__ import annotations

import socket
from typing import Any

from folkmoot.host.tls_socket import TlsSocket

#: Bytes of a body that are read, hashed and written at once: they fit a core's second-level cache.
PIECE = 1 << 18
MAX_FRAME = 8192
#: An answer may bring a round's task, with its settings.
MAX_ANSWER = 1 << 17
LENGTH = 4
#: With TLS, and without.
Socket = socket.socket | TlsSocket


class BadFrame(OSError):
    """What was said on a line is no message; the line is of no use any more."""


def encode_frame(message: Any) -> bytes:
    body: bytes = message.SerializeToString()
    return len(body).to_bytes(LENGTH, "little") + body


def decode_frame(kind: Any, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise BadFrame(f"a frame is no {kind.DESCRIPTOR.name}: {error}") from None


def missing(buffer: bytes | bytearray, most: int = MAX_FRAME) -> int:
    """How many bytes a frame that begins with `buffer` still lacks, as far as one can tell."""
    if len(buffer) < LENGTH:
        return LENGTH - len(buffer)
    length = int.from_bytes(buffer[:LENGTH], "little")
    if length > most:
        raise BadFrame(f"a frame of {length} bytes; at most {most}")
    return LENGTH + length - len(buffer)


def read_frame(line: Socket, kind: Any, most: int = MAX_FRAME) -> Any:
    """The next frame of a line; blocks."""
    buffer = bytearray()
    while count := missing(buffer, most):
        if not (got := line.recv(count)):
            raise ConnectionResetError("the line was closed")
        buffer += got
    return decode_frame(kind, bytes(buffer[LENGTH:]))


def fill(line: Socket, piece: memoryview) -> None:
    """Read exactly what `piece` has room for."""
    done, size = 0, len(piece)
    while done < size:
        got = line.recv_into(piece[done:])
        if got == 0:
            raise ConnectionResetError("the line was closed")
        done += got
