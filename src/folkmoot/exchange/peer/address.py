"""Where a peer can be reached, as opaque bytes that travel through the coordinator's state.

At most `ADDRESS_LIMIT` bytes, because every client's address is part of every snapshot: a relay
url and as many direct addresses as fit. A peer that lies about its address only makes itself
unreachable: the connection is made to its key.
"""

from typing import Annotated

import msgspec

ADDRESS_LIMIT = 256
Text = Annotated[str, msgspec.Meta(max_length=200)]


class Address(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How to dial a peer."""

    direct: tuple[Text, ...] = ()
    relay: Text | None = None


def encode_address(address: Address) -> bytes:
    """The bytes of `address`; the last direct addresses are left out when they do not fit."""
    for keep in range(len(address.direct), -1, -1):
        data = msgspec.msgpack.encode(Address(address.direct[:keep], address.relay))
        if len(data) <= ADDRESS_LIMIT:
            return data
    raise ValueError(f"The relay url {address.relay!r} is too long: {ADDRESS_LIMIT} bytes at most.")


def decode_address(data: bytes) -> Address:
    """Raises ValueError when `data` is not an address."""
    if len(data) > ADDRESS_LIMIT:
        raise ValueError(f"A peer's address has {len(data)} bytes; {ADDRESS_LIMIT} at most.")
    try:
        return msgspec.msgpack.decode(data, type=Address)
    except msgspec.MsgspecError as error:
        raise ValueError(f"A peer's address cannot be read: {error}") from error
