"""The masks of a sum, kept on disk while its model is made.

Whoever revealed for one set of survivors will not for another in the same round, so a coordinator
that dies after the reveal must not need to ask again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from folkmoot.core.federation.state import Delivery
from folkmoot.federated.secure.masks import Mask
from folkmoot.host.files import write_atomically


class SavedMasks(msgspec.Struct, frozen=True):
    """The digests say which uploads these masks are of; those of another attempt do not fit."""

    round: int
    digests: list[str]
    masks: list[tuple[bytes, int]]


def save_masks(path: Path, deliveries: Sequence[Delivery], masks: Sequence[Mask]) -> None:
    """Keep the masks of a sum until the next one's."""
    digests = [delivery.digest for delivery in deliveries]
    kept = SavedMasks(deliveries[0].round, digests, [(mask.key, mask.sign) for mask in masks])
    write_atomically(path, msgspec.msgpack.encode(kept))


def load_masks(path: Path, deliveries: Sequence[Delivery]) -> list[Mask] | None:
    """The masks of exactly these updates, if they were known before a restart."""
    try:
        kept = msgspec.msgpack.decode(path.read_bytes(), type=SavedMasks)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    same = [delivery.digest for delivery in deliveries] == kept.digests
    if not same or deliveries[0].round != kept.round:
        return None
    return [Mask(key, sign) for key, sign in kept.masks]
