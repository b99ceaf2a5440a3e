"""A participant of a federation: WAITING i, TRAINING j, DONE.

In WAITING i it has trained round i and waits for a heartbeat that says ROUND j with j > i (or that
its update for j is still expected: it was bad, or the coordinator lost it). It is then in
TRAINING j until its update was taken, and WAITING j after that. FINISHED ends it. At first, i = −1.
"""

from enum import StrEnum
from typing import NamedTuple

import msgspec

from folkmoot.core.federation import state as coordinator
from folkmoot.core.machine import Effect, Event, Outcome
from folkmoot.core.table import Edge, first


class Phase(StrEnum):
    WAITING = "WAITING"
    TRAINING = "TRAINING"
    DONE = "DONE"


class Heard(Event, frozen=True, tag=True):
    """A heartbeat was answered."""

    phase: str  # of the coordinator
    round: int
    expected: bool = False


class Trained(Event, frozen=True, tag=True):
    """The coordinator counted the update of the round in training."""


class Failed(Event, frozen=True, tag=True):
    """The round in training came to nothing: it was over, or the update was refused."""


class Train(Effect, frozen=True, tag=True):
    round: int


class Stop(Effect, frozen=True, tag=True):
    """Leave: there are no more rounds."""


AnyEvent = Heard | Trained | Failed


class ParticipantState(msgspec.Struct, frozen=True):
    phase: Phase = Phase.WAITING
    trained: int = -1
    training: int = -1


class _Now(NamedTuple):
    state: ParticipantState
    event: AnyEvent


def _called(now: _Now) -> bool:
    """An `expected` repetition counts as well as a new round; an older round never does."""
    e = now.event
    if not isinstance(e, Heard) or e.phase != coordinator.Phase.ROUND:
        return False
    return e.round > now.state.trained or (e.expected and e.round == now.state.trained)


def _finished(now: _Now) -> bool:
    return isinstance(now.event, Heard) and now.event.phase == coordinator.Phase.FINISHED


def _trained(now: _Now) -> bool:
    return isinstance(now.event, Trained)


def _failed(now: _Now) -> bool:
    return isinstance(now.event, Failed)


TABLE: tuple[Edge[_Now], ...] = (
    Edge(Phase.WAITING, Phase.TRAINING, "ROUND j, j > i", _called),
    Edge(Phase.WAITING, Phase.DONE, "FINISHED", _finished),
    Edge(Phase.TRAINING, Phase.WAITING, "trained, i := j", _trained),
    Edge(Phase.TRAINING, Phase.WAITING, "the update came to nothing", _failed),
)


def apply(state: ParticipantState, event: AnyEvent) -> Outcome[ParticipantState]:
    """The state after `event`, and what to do. Neither time nor chance has a part in it."""
    edge = first(TABLE, state.phase, _Now(state, event))
    if edge is None:
        return Outcome(state, ())
    if edge.target == Phase.TRAINING and isinstance(event, Heard):
        started = ParticipantState(Phase.TRAINING, state.trained, event.round)
        return Outcome(started, (Train(event.round),))
    if edge.target == Phase.DONE:
        return Outcome(ParticipantState(Phase.DONE, state.trained), (Stop(),))
    trained = state.training if isinstance(event, Trained) else state.trained
    return Outcome(ParticipantState(Phase.WAITING, trained), ())
