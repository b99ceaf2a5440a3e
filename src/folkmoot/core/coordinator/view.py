"""What clients are shown of a state: everything they compute with, nothing that only counts.

Signs of life change with every message and concern nobody but the coordinator. Without them a
state changes a few times a round, and only that is sent. Between epochs clients are shown who
waits; so most of an epoch's roster is known before the epoch begins, and its beginning is a small
change, however many they are. During an epoch nobody needs to know who waits for the next.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from folkmoot.core import delta
from folkmoot.core.coordinator.state import Client, Coordinator, Pending
from folkmoot.core.registry import Registry, registry_of
from folkmoot.core.unreadable import UNREADABLE

_NOBODY: Registry[Any] = Registry()


def view(state: Coordinator, since: tuple[Coordinator, Coordinator] | None = None) -> Coordinator:
    """The state as clients see it; cheaper `since` an earlier state and its view."""
    epoch = replace(state.epoch, vitals=(), ready=b"", proven=b"", called_gone=(), called_false=())
    waiting = _NOBODY
    if not state.epoch.clients:
        # What an earlier view shows of those who waited is of use unless it hid them.
        known = (_NOBODY, _NOBODY)
        if since and not since[0].epoch.clients:
            known = (since[0].pending, since[1].pending)
        waiting = state.pending.mapped(_still, *known)
    return replace(state, pending=waiting, epoch=epoch)


def _still(pending: Pending) -> Pending:
    """Without what changes while it waits."""
    return Pending(pending.id, 0, pending.address, 0, pending.model_hash)


class _Told(msgspec.Struct, frozen=True):
    """A view as it is compared with another: its clients in one place, whether they wait or not."""

    rest: Coordinator
    waiting: bool
    clients: tuple[Client, ...]


def _told(shown: Coordinator) -> _Told:
    clients = shown.epoch.clients
    rest = replace(shown, pending=_NOBODY, epoch=replace(shown.epoch, clients=()))
    if clients:
        return _Told(rest, False, clients)
    return _Told(rest, True, tuple(Client(p.id, p.address, p.model_hash) for p in shown.pending))


def _untold(told: _Told) -> Coordinator:
    if not told.waiting:
        return replace(told.rest, epoch=replace(told.rest.epoch, clients=told.clients))
    waiting = [Pending(c.id, 0, c.address, 0, c.model_hash) for c in told.clients]
    return replace(told.rest, pending=registry_of(waiting))


def encode_change(old: Coordinator, new: Coordinator) -> bytes:
    """The bytes of what changed between two views; empty when nothing did."""
    changes = delta.diff(_told(old), _told(new))
    return msgspec.msgpack.encode(changes) if changes else b""


def apply_change(old: Coordinator, change: bytes) -> Coordinator:
    """The view after a change; raises `DeltaError` when the bytes do not fit."""
    try:
        changes = msgspec.msgpack.decode(change, type=dict[str, Any])
    except UNREADABLE as error:
        raise delta.DeltaError(f"not a change of a state: {error}") from error
    try:
        return _untold(delta.patch(_told(old), changes))
    except IndexError as error:
        raise delta.DeltaError("a client without an identity") from error
