"""What clients are shown of a state: everything they compute with, nothing that only counts.

Signs of life and the list of those who wait change with every message and concern nobody but the
coordinator. Without them a state changes a few times a round, and only that is sent.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from folkmoot.core import delta
from folkmoot.core.coordinator.state import Coordinator
from folkmoot.core.registry import Registry
from folkmoot.core.unreadable import UNREADABLE

_NOBODY: Registry[Any] = Registry()


def view(state: Coordinator) -> Coordinator:
    """The state as clients see it."""
    epoch = replace(state.epoch, vitals=(), ready=b"", leaving=())
    return replace(state, pending=_NOBODY, epoch=epoch)


def encode_change(old: Coordinator, new: Coordinator) -> bytes:
    """The bytes of what changed between two views; empty when nothing did."""
    changes = delta.diff(old, new)
    return msgspec.msgpack.encode(changes) if changes else b""


def apply_change(old: Coordinator, change: bytes) -> Coordinator:
    """The view after a change; raises `DeltaError` when the bytes do not fit."""
    try:
        changes = msgspec.msgpack.decode(change, type=dict[str, Any])
    except UNREADABLE as error:
        raise delta.DeltaError(f"not a change of a state: {error}") from error
    return delta.patch(old, changes)
