"""What happens to a federation (events) and what follows from it (effects): frozen values.

Events are what the journal keeps; effects are what the shell does and what the event log shows.
"""

from enum import StrEnum
from typing import Literal

import msgspec

from folkmoot.core.federation.config import Scalar
from folkmoot.core.federation.state import Evaluation, UpperRound
from folkmoot.core.machine import Effect as Effect
from folkmoot.core.machine import Event as Event
from folkmoot.core.machine import Refused as Refused
from folkmoot.core.machine import StateChanged as StateChanged
from folkmoot.core.machine import Tick as Tick

# Events.


class Rendezvous(Event, frozen=True, tag=True):
    """A participant registers, or comes back after it lost its connection."""

    id: str
    # What it says of itself, for `require`.
    properties: dict[str, Scalar] = msgspec.field(default_factory=dict)


class Dropped(Event, frozen=True, tag=True):
    """These participants were silent for too long."""

    ids: tuple[str, ...]


class Delivered(Event, frozen=True, tag=True):
    """A participant's update for a round is in the bucket and was found good."""

    id: str
    round: int
    digest: str
    samples: int
    # Of the round's global model, which it was given.
    evaluation: Evaluation | None = None
    # Of how many updates it is the sum, if an aggregator made it; 0: it is one update.
    participants: int = 0


class Quarantined(Event, frozen=True, tag=True):
    """A participant's update for a round is bad."""

    id: str
    round: int
    reason: str


class Excused(Event, frozen=True, tag=True):
    """These came too late for the round's secure aggregation, through no fault of theirs."""

    ids: tuple[str, ...]
    round: int


class Spoiled(Event, frozen=True, tag=True):
    """Accepted updates turn out to make no model together with the others: they are bad."""

    keys: tuple[str, ...]


class Late(Event, frozen=True, tag=True):
    """These took much longer than the others: the round goes on without them."""

    ids: tuple[str, ...]
    round: int


class Lost(Event, frozen=True, tag=True):
    """Accepted updates cannot be read back: they are asked for again."""

    keys: tuple[str, ...]


class Written(Event, frozen=True, tag=True):
    """The global model that the round's updates make is in the bucket."""

    round: int
    digest: str
    # Of the model just written, where the owner has it evaluated in one place.
    loss: float | None = None


class Called(Event, frozen=True, tag=True):
    """The coordinator above an aggregator is in this round, and the round's model is here."""

    above: UpperRound


class Ended(Event, frozen=True, tag=True):
    """The coordinator above an aggregator has finished."""


AnyEvent = (
    Rendezvous
    | Dropped
    | Delivered
    | Quarantined
    | Spoiled
    | Excused
    | Late
    | Lost
    | Tick
    | Written
    | Called
    | Ended
)


# Effects.


class Reply(Effect, frozen=True, tag=True):
    """The answer to a Rendezvous."""

    reply: Literal["ACCEPT", "LATER"]


class Counted(Effect, frozen=True, tag=True):
    """The answer to a delivery: it counts, once; `again` says that it was known already."""

    key: str
    again: bool


class Joined(Effect, frozen=True, tag=True):
    id: str


class Left(Effect, frozen=True, tag=True):
    id: str
    reason: str


class Selected(Effect, frozen=True, tag=True):
    """These participants are asked to train the round, besides those asked before."""

    round: int
    ids: tuple[str, ...]


class LeftOut(Effect, frozen=True, tag=True):
    """The round goes on without these: they took much longer than the others."""

    round: int
    ids: tuple[str, ...]


class Evaluated(Effect, frozen=True, tag=True):
    """What a global model is worth: the mean of its loss; `best` so far or not."""

    round: int
    loss: float
    best: bool


class Aggregate(Effect, frozen=True, tag=True):
    """Make the next global model of the updates under these keys, in this order."""

    round: int
    keys: tuple[str, ...]


class Reason(StrEnum):
    """Why an event was refused."""

    UnknownParticipant = "UnknownParticipant"
    Expelled = "Expelled"
    OutsideRound = "OutsideRound"
    NotSelected = "NotSelected"
    StaleRound = "StaleRound"
    FutureRound = "FutureRound"
    DifferentUpdate = "DifferentUpdate"
    BadSamples = "BadSamples"
    NotEligible = "NotEligible"
    Closed = "Closed"
