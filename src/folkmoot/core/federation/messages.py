"""What happens to a federation (events) and what follows from it (effects): frozen values.

Events are what the journal keeps; effects are what the shell does and what the event log shows.
"""

from typing import Literal

import msgspec


class Message(msgspec.Struct, frozen=True, tag=True):
    """An event or an effect; its tag is its name."""


# Events.


class Rendezvous(Message, frozen=True, tag=True):
    """A participant registers, or comes back after it lost its connection."""

    id: str


class Dropped(Message, frozen=True, tag=True):
    """These participants were silent for too long."""

    ids: tuple[str, ...]


class Delivered(Message, frozen=True, tag=True):
    """A participant's update for a round is in the bucket and was found good."""

    id: str
    round: int
    digest: str
    samples: int


class Quarantined(Message, frozen=True, tag=True):
    """A participant's update for a round is bad."""

    id: str
    round: int
    reason: str


class Excused(Message, frozen=True, tag=True):
    """These came too late for the round's secure aggregation, through no fault of theirs."""

    ids: tuple[str, ...]
    round: int


class Lost(Message, frozen=True, tag=True):
    """Accepted updates cannot be read back: they are asked for again."""

    keys: tuple[str, ...]


class Tick(Message, frozen=True, tag=True):
    """Time passed; a deadline may have."""


class Written(Message, frozen=True, tag=True):
    """The global model that the round's updates make is in the bucket."""

    round: int
    digest: str


Event = Rendezvous | Dropped | Delivered | Quarantined | Excused | Lost | Tick | Written


# Effects.


class Reply(Message, frozen=True, tag=True):
    """The answer to a Rendezvous."""

    reply: Literal["ACCEPT", "LATER"]


class Counted(Message, frozen=True, tag=True):
    """The answer to a delivery: it counts, once; `again` says that it was known already."""

    key: str
    again: bool


class Joined(Message, frozen=True, tag=True):
    id: str


class Left(Message, frozen=True, tag=True):
    id: str
    reason: str


class Selected(Message, frozen=True, tag=True):
    """These participants are asked to train the round, besides those asked before."""

    round: int
    ids: tuple[str, ...]


class Aggregate(Message, frozen=True, tag=True):
    """Make the next global model of the updates under these keys, in this order."""

    round: int
    keys: tuple[str, ...]


class Moved(Message, frozen=True, tag=True):
    """The coordinator changed its state, or began another round."""

    phase: str
    round: int
    why: str


class Refused(Message, frozen=True, tag=True):
    """The event changed nothing; `reason` is a sentence for its sender."""

    code: Literal[
        "unknown-participant",
        "expelled",
        "outside-round",
        "not-selected",
        "stale-round",
        "future-round",
        "different-update",
        "bad-samples",
        "closed",
    ]
    reason: str


Effect = Reply | Counted | Joined | Left | Selected | Aggregate | Moved | Refused
