"""Signed bytes for a store: whoever can write to it can write anything, so values prove themselves.

A signature covers a context, the run's genesis (and with it the run's name, its owners and a number
drawn once), what else the context names, and the payload.
"""

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.signing import Identity, Unauthenticated, framed, verify


class Signed(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    key: bytes
    signature: bytes
    payload: bytes


_decode = msgspec.msgpack.Decoder(Signed).decode


def seal(identity: Identity, payload: bytes, *context: bytes) -> bytes:
    """`payload`, signed for `context`."""
    signature = identity.sign(framed(*context, payload))
    return msgspec.msgpack.encode(Signed(identity.public, signature, payload))


def unseal(data: bytes, *context: bytes) -> tuple[bytes, bytes]:
    """(public key, payload), or `Unauthenticated` with what is wrong."""
    try:
        signed = _decode(data)
    except UNREADABLE as error:
        raise Unauthenticated(f"it is not a signed value: {error}") from error
    verify(signed.key, signed.signature, framed(*context, signed.payload))
    return signed.key, signed.payload
