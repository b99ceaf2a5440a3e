"""A gossip message: what its author signed, readable by whoever it reaches by whatever way.

    sealed    content ‖ 64 bytes of Ed25519 signature
    signed    context ‖ the run's topic ‖ content
    id        the first 16 bytes of BLAKE3(content)

The id leaves the signature out, so a second valid signature makes no second message. Two different
contents are two messages even when their author should have sent one: both spread, within the
author's quota, and everybody sees that it spoke twice.
"""

from typing import Annotated

import msgspec
from blake3 import blake3
from iroh import EndpointId, IrohError, SecretKey, Signature

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.exchange.peer.wire import ID_BYTES, Count, Key, Malformed, Round

CONTEXT = b"folkmoot gossip message v1\0"
SIGNATURE_BYTES = 64


class Blob(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Content too large to ride in a message: fetch it by name."""

    name: Key
    size: Count


class Content(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What an author says in a round."""

    origin: Key
    round: Round
    head: bytes
    body: bytes
    blob: Annotated[Blob | None, "its body, when that does not ride here"] = None


class GossipMessage(msgspec.Struct, frozen=True):
    """A message whose signature was checked."""

    id: bytes
    content: Content
    sealed: bytes

    @property
    def origin(self) -> bytes:
        return self.content.origin

    @property
    def round(self) -> int:
        return self.content.round

    @property
    def head(self) -> bytes:
        return self.content.head


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Content)


def _id(content: bytes) -> bytes:
    return blake3(content).digest(ID_BYTES)


def seal(content: Content, topic: bytes, secret: SecretKey) -> GossipMessage:
    """Sign `content` for a run."""
    data = _encoder.encode(content)
    signature = secret.sign(CONTEXT + topic + data).to_bytes()
    return GossipMessage(_id(data), content, data + signature)


def peek_id(sealed: bytes) -> bytes:
    """The id of a sealed message, before anything of it is believed."""
    return _id(sealed[:-SIGNATURE_BYTES])


def unseal(sealed: bytes, topic: bytes) -> GossipMessage:
    """The message in `sealed`; Malformed when it cannot be read or its author did not sign it."""
    data, signature = sealed[:-SIGNATURE_BYTES], sealed[-SIGNATURE_BYTES:]
    try:
        content = _decoder.decode(data)
        author = EndpointId.from_bytes(content.origin)
        author.verify(CONTEXT + topic + data, Signature.from_bytes(signature))
    except UNREADABLE as error:
        raise Malformed(f"a message that cannot be read: {str(error)[:200]}") from error
    except IrohError as error:
        raise Malformed("a message that its author did not sign") from error
    return GossipMessage(_id(data), content, sealed)
