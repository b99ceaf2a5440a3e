"""What a master and a fork server say to each other: msgpack, each message after its length.

Their socket lies in a folder that only its owner may enter, so both are of one user.
"""

import socket
import struct
from collections.abc import Iterator

import msgspec

from folkmoot.unified.substrate import Created, Ended, Launch, OfActor

LENGTH = struct.Struct("<I")
MAX_MESSAGE = 64 * 1024 * 1024


class Attach(msgspec.Struct, frozen=True, tag=True):
    """The first message: whose orders follow."""

    epoch: int


class Fork(msgspec.Struct, frozen=True, tag=True):
    launch: Launch


class Kill(OfActor, frozen=True, tag=True):
    pass


class EndAll(msgspec.Struct, frozen=True, tag=True):
    """End every actor, then yourself."""


class Here(msgspec.Struct, frozen=True, tag=True):
    """The answer to `Attach`."""

    living: tuple[Created, ...]
    ended: tuple[Ended, ...]


class TurnedAway(msgspec.Struct, frozen=True, tag=True):
    """A newer master was here."""

    epoch: int


class AllEnded(msgspec.Struct, frozen=True, tag=True):
    pass


Order = Attach | Fork | Kill | EndAll
Answer = Here | TurnedAway | AllEnded | Created | Ended
decode_order = msgspec.msgpack.Decoder(Order).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
_encode = msgspec.msgpack.Encoder().encode


def packed(message: Order | Answer) -> bytes:
    body = _encode(message)
    return LENGTH.pack(len(body)) + body


class Messages:
    """Takes bytes as they come, gives whole messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def received(self, data: bytes) -> Iterator[bytes]:
        self._buffer += data
        while len(self._buffer) >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._buffer)
            if size > MAX_MESSAGE:
                raise ValueError(f"a message of {size} bytes; at most {MAX_MESSAGE} are taken")
            if len(self._buffer) < LENGTH.size + size:
                return
            message = bytes(self._buffer[LENGTH.size : LENGTH.size + size])
            del self._buffer[: LENGTH.size + size]  # before it is given: nobody may come back
            yield message


def receive(stream: socket.socket, messages: Messages) -> Iterator[bytes]:
    """Blocking, until the other end is gone."""
    while data := stream.recv(65536):
        yield from messages.received(data)
