"""A message of a client on its way into the log: signed for one slot of one run's mailbox.

Slots are handed out by a counter and taken once, so a letter that is copied into another slot is
worth nothing there: the slot's number is the nonce. A letter is good or not by its own bytes and
the genesis alone, so all who read it judge alike.
"""

import msgspec

from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.signed import seal, unseal
from folkmoot.core.coordinator import messages as m
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.signing import Identity, Unauthenticated

# The largest letter: two filters for 65,535 clients, and room for the rest.
MAX_MAIL = 256 * 1024

Message = m.ClientMessage | m.OwnerMessage
_messages = msgspec.msgpack.Decoder(Message)


class BadMail(Exception):
    """A letter that counts for nothing; the message says why."""


class Mail(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A letter as it lies in its slot."""

    slot: int
    data: bytes


def write_mail(identity: Identity, genesis: Genesis, slot: int, message: Message) -> bytes:
    payload = msgspec.msgpack.encode(message)
    return seal(identity, payload, *_context(genesis, slot))


def read_mail(genesis: Genesis, mail: Mail) -> Message:
    """What its sender says, or `BadMail`."""
    if len(mail.data) > MAX_MAIL:
        raise BadMail(f"it is larger than {MAX_MAIL:,} bytes")
    try:
        key, payload = unseal(mail.data, *_context(genesis, mail.slot))
        message: Message = _messages.decode(payload)
    except Unauthenticated as error:
        raise BadMail(str(error)) from None
    except UNREADABLE as error:
        raise BadMail(f"it is not a message of a client: {error}") from error
    if wrong := genesis.access.not_allowed(key, message):
        raise BadMail(wrong)
    return message


def _context(genesis: Genesis, slot: int) -> tuple[bytes, ...]:
    return b"folkmoot mail 1", genesis.digest, slot.to_bytes(8, "little")
