"""A participant of a federation: WAITING i, TRAINING j, DONE.

In WAITING i it has trained round i and waits for a heartbeat that says ROUND j with j > i (or that
its update for j is still expected: it was bad, or the coordinator lost it). It is then in
TRAINING j until its update was taken, and WAITING j after that. FINISHED ends it. At first, i = −1.
"""

from typing import Literal, NamedTuple

import msgspec

from folkmoot.core.federation.messages import Message
from folkmoot.core.table import Edge, first

WAITING, TRAINING, DONE = "WAITING", "TRAINING", "DONE"


class Heard(Message, frozen=True, tag=True):
    """A heartbeat was answered."""

    phase: Literal["STANDBY", "ROUND", "FINISHED"]
    round: int
    expected: bool = False


class Trained(Message, frozen=True, tag=True):
    """The coordinator counted the update of the round in training."""


class Failed(Message, frozen=True, tag=True):
    """The round in training came to nothing: it was over, or the update was refused."""


class Train(Message, frozen=True, tag=True):
    round: int


class Stop(Message, frozen=True, tag=True):
    """Leave: there are no more rounds."""


Event = Heard | Trained | Failed
Effect = Train | Stop


class Participant(msgspec.Struct, frozen=True):
    phase: str = WAITING
    trained: int = -1
    training: int = -1


class _Now(NamedTuple):
    state: Participant
    event: Event


def _called(now: _Now) -> bool:
    """An `expected` repetition counts as well as a new round; an older round never does."""
    e = now.event
    if not isinstance(e, Heard) or e.phase != "ROUND":
        return False
    return e.round > now.state.trained or (e.expected and e.round == now.state.trained)


TABLE: tuple[Edge[_Now], ...] = (
    Edge(WAITING, TRAINING, "ROUND j, j > i", _called),
    Edge(
        WAITING,
        DONE,
        "FINISHED",
        lambda now: isinstance(now.event, Heard) and now.event.phase == "FINISHED",
    ),
    Edge(TRAINING, WAITING, "trained, i := j", lambda now: isinstance(now.event, Trained)),
    Edge(
        TRAINING, WAITING, "the update came to nothing", lambda now: isinstance(now.event, Failed)
    ),
)


def apply(state: Participant, event: Event) -> tuple[Participant, tuple[Effect, ...]]:
    """The state after `event`, and what to do."""
    edge = first(TABLE, state.phase, _Now(state, event))
    if edge is None:
        return state, ()
    if edge.target == TRAINING and isinstance(event, Heard):
        started = Participant(TRAINING, state.trained, event.round)
        return started, (Train(event.round),)
    if edge.target == DONE:
        return Participant(DONE, state.trained), (Stop(),)
    trained = state.training if isinstance(event, Trained) else state.trained
    return Participant(WAITING, trained), ()
