"""What a peer tells its owner as it happens, for logs and for people who watch."""

import msgspec


class PeerEvent(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Anything worth a line."""

    peer: bytes


class Connected(PeerEvent, frozen=True, tag=True):
    dialled: bool


class Disconnected(PeerEvent, frozen=True, tag=True):
    reason: str


class DialFailed(PeerEvent, frozen=True, tag=True):
    """A member could not be dialled; it is tried again."""

    reason: str


class TurnedAway(PeerEvent, frozen=True, tag=True):
    """Somebody who is not a member, or is shunned, was turned away."""

    reason: str


class Ignored(PeerEvent, frozen=True, tag=True):
    """A message that a member passed on was not taken; nobody is to blame for certain."""

    reason: str


class Misbehaved(PeerEvent, frozen=True, tag=True):
    """A member broke the rules and was hung up on."""

    reason: str
