"""What members of a cohort tell each other through the coordinator, as msgpack, checked as it is
read.

Every field has a fixed length or a bound, so a stranger's bytes are either one of these or a
`BadMessage`.
"""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

from folkmoot.federated.secure.shamir import SHARE_BYTES

MAX_COHORT = 4096
#: A share of the seed and one of the mask key, encrypted with their 16-byte tag.
SEALED_BYTES = 2 * SHARE_BYTES + 16

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Key = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]
Signature = Annotated[bytes, msgspec.Meta(min_length=64, max_length=64)]
Share = Annotated[bytes, msgspec.Meta(min_length=SHARE_BYTES, max_length=SHARE_BYTES)]
Sealed = Annotated[bytes, msgspec.Meta(min_length=SEALED_BYTES, max_length=SEALED_BYTES)]


class Keys(msgspec.Struct, frozen=True, array_like=True):
    """A member's keys for one attempt: for sealing shares and for masks, signed by its identity.

    `commitment` is a digest of its seed, so that a seed rebuilt from false shares is noticed.
    """

    sealing: Key
    masking: Key
    commitment: Key
    identity: Key
    signature: Signature


class Cohort(msgspec.Struct, frozen=True):
    """Everybody whose keys came in time; a member's number is its place in the order of ids."""

    threshold: int
    keys: Annotated[dict[Id, Keys], msgspec.Meta(max_length=MAX_COHORT)]


class Shares(msgspec.Struct, frozen=True):
    """Sealed shares by holder (from a member), or by dealer (to a member)."""

    sealed: Annotated[dict[Id, Sealed], msgspec.Meta(max_length=MAX_COHORT)]


class Unopened(msgspec.Struct, frozen=True):
    """Dealers whose shares a member could not open; told before anybody reveals anything."""

    dealers: Annotated[list[Id], msgspec.Meta(max_length=MAX_COHORT)]


class Survivors(msgspec.Struct, frozen=True):
    """Who of the dealers delivered an update; the others dropped out."""

    delivered: Annotated[list[Id], msgspec.Meta(max_length=MAX_COHORT)]


class Confirmation(msgspec.Struct, frozen=True):
    """That a member was told this list of survivors, signed by its identity."""

    signature: Signature


class Confirmations(msgspec.Struct, frozen=True):
    """Who was told the same list: enough of them, and nobody needs to believe the coordinator."""

    signatures: Annotated[dict[Id, Signature], msgspec.Meta(max_length=MAX_COHORT)]


class Reveal(msgspec.Struct, frozen=True):
    """Shares of the seeds of those who delivered, and of the mask keys of those who did not."""

    seeds: Annotated[dict[Id, Share], msgspec.Meta(max_length=MAX_COHORT)]
    masking: Annotated[dict[Id, Share], msgspec.Meta(max_length=MAX_COHORT)]


class BadMessage(ValueError):
    """Bytes that are not the message expected; the text says why."""


T = TypeVar("T", Keys, Cohort, Shares, Unopened, Survivors, Confirmation, Confirmations, Reveal)

encode = msgspec.msgpack.Encoder(order="deterministic").encode


def decode(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadMessage(f"not a valid {kind.__name__} message: {error}") from None
