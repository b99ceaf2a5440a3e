"""What a peer tells its owner as it happens, for logs and for people who watch."""

import msgspec


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Anything worth a line."""

    peer: bytes


class Connected(Event, frozen=True, tag=True):
    dialled: bool


class Disconnected(Event, frozen=True, tag=True):
    reason: str


class Unreachable(Event, frozen=True, tag=True):
    """A member could not be dialled; it is tried again."""

    reason: str


class Turned(Event, frozen=True, tag=True):
    """Somebody who is not a member, or is shunned, was turned away."""

    reason: str


class Misbehaved(Event, frozen=True, tag=True):
    """A member broke the rules: it was hung up on, or what it sent was thrown away."""

    reason: str
