"""What peers say to each other, and how it is framed.

A frame is its length in four bytes, little-endian, then a msgpack array whose first item names the
kind. The length is compared with a bound before anything is read; fields are bounded when decoded.

    one-way stream, one each way per connection    Hello, then Gossip Digest Have Want
    two-way stream, one per request                Get → Found and pieces, or RefusedReply
                                                   Call → Answer, or RefusedReply
"""

from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from folkmoot.core.unreadable import UNREADABLE

ALPN = b"folkmoot/peer/1"
LENGTH_BYTES = 4
ID_BYTES = 16
"""A message is known by the first bytes of the hash of what its author signed."""

Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Id = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Ids = Annotated[tuple[Id, ...], msgspec.Meta(max_length=4096)]
Round = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]
Name = Annotated[str, msgspec.Meta(max_length=64)]
Sentence = Annotated[str, msgspec.Meta(max_length=500)]


class Malformed(Exception):
    """A peer sent what this protocol does not know; its message says what."""


class Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Anything with a length in front of it."""


class Hello(Frame, frozen=True, tag=0):
    """The first frame each way: which run, and which life of the process this is."""

    topic: Key
    life: Annotated[bytes, msgspec.Meta(min_length=8, max_length=8)]


class Gossip(Frame, frozen=True, tag=1):
    """A signed message, as its author sealed it."""

    sealed: bytes


class Digest(Frame, frozen=True, tag=2):
    """For some rounds, a hash over the ids of every message the sender holds."""

    rounds: Annotated[tuple[tuple[Round, Id], ...], msgspec.Meta(max_length=256)]


class Have(Frame, frozen=True, tag=3):
    """The ids of the messages the sender holds for a round; `asked` wants the same back."""

    round: Round
    ids: Ids
    asked: bool


class Want(Frame, frozen=True, tag=4):
    """Please send these messages."""

    ids: Ids


class Get(Frame, frozen=True, tag=5):
    """Please send these pieces of some content; with its outline when the asker has none yet."""

    name: Key
    start: Count
    stop: Count
    outline: bool


class Found(Frame, frozen=True, tag=6):
    """The content's size and, if asked for, its pieces' hashes; the pieces follow."""

    size: Count
    hashes: bytes


class Call(Frame, frozen=True, tag=7):
    """A question of the method `name`."""

    name: Name
    payload: bytes


class Answer(Frame, frozen=True, tag=8):
    payload: bytes


class RefusedReply(Frame, frozen=True, tag=9):
    """Not done. `retry`: ask again a little later."""

    reason: Sentence
    retry: bool = False


Control = Hello | Gossip | Digest | Have | Want
Request = Get | Call
GetReply = Found | RefusedReply
CallReply = Answer | RefusedReply

_encoder = msgspec.msgpack.Encoder()


def encode(frame: Frame) -> bytes:
    """A frame's bytes with its length in front."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(LENGTH_BYTES, "little") + body


def length_of(head: bytes, limit: int) -> int:
    """The length a frame's first bytes announce; Malformed when it is over `limit`."""
    length = int.from_bytes(head, "little")
    if not 0 < length <= limit:
        raise Malformed(f"a frame of {length} bytes; at most {limit} are taken here")
    return length


def _decoder(kinds: Any) -> Callable[[bytes], Any]:
    """Reads one set of kinds."""
    decoder = msgspec.msgpack.Decoder(kinds)

    def decode(body: bytes) -> Any:
        try:
            return decoder.decode(body)
        except UNREADABLE as error:
            raise Malformed(f"a frame that cannot be read: {str(error)[:200]}") from error

    return decode


decode_control = _decoder(Control)
decode_request = _decoder(Request)
decode_get_reply = _decoder(GetReply)
decode_call_reply = _decoder(CallReply)
