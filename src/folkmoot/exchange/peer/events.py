"""What a peer tells its owner as it happens, for logs and for people who watch."""

import msgspec


class PeerEvent(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Anything worth a line."""

    peer: bytes


class Connected(PeerEvent, frozen=True, tag=True):
    dialled: bool


class WithReason(PeerEvent, frozen=True, tag=True):
    """What did not go well, and why."""

    reason: str


class Disconnected(WithReason, frozen=True, tag=True):
    """The connection with a member is over."""


class DialFailed(WithReason, frozen=True, tag=True):
    """A member could not be dialled; it is tried again."""


class TurnedAway(WithReason, frozen=True, tag=True):
    """Somebody who is not a member, or is shunned, was turned away."""


class Ignored(WithReason, frozen=True, tag=True):
    """A message that a member passed on was not taken; nobody is to blame for certain."""


class Misbehaved(WithReason, frozen=True, tag=True):
    """A member broke the rules and was hung up on."""
