"""The coordinator of a run: `apply(state, event, now, seed)` gives the new state and the effects.

The rules of this file:

- An event is first received: refused with a reason, which changes nothing, or recorded.
- Then the table below is asked, once, whether an edge out of the present phase is due. Nothing
  else changes the phase. Passing an edge closes the old phase and enters the new one.
- A round closes when its witnesses were heard. What a quorum saw is learnt, what no quorum saw is
  owed and trained again. Those who left, fell silent or did no work lose their place. Newcomers
  cannot crowd out those whose results were attested (`newcomers.py`).
- When an epoch must end, it first drains: rounds that train nothing, until the last results are
  attested and applied and a quorum has agreed on the hash of the model that came out. That model
  is what the epoch hands on. An epoch that reaches no such agreement hands on nothing: the run
  goes back to the last stored model, with the progress that belongs to it.
- Time and randomness are arguments. `next_tick` says when to call again if nothing arrives.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator import newcomers, receive
from folkmoot.core.coordinator.conditions import (
    agreed,
    all_heard,
    all_ready,
    done,
    drained,
    ms,
    nothing_to_store,
    too_few,
)
from folkmoot.core.coordinator.config import Run
from folkmoot.core.coordinator.phases import CLOSE, ENTER, next_silence, tick
from folkmoot.core.coordinator.receive import Effects
from folkmoot.core.coordinator.state import Coordinator, Phase, first_checkpoint
from folkmoot.core.machine import Outcome, decoder
from folkmoot.core.machine import encode as encode
from folkmoot.core.table import Edge, first

AnyEvent = m.AnyEvent
decode = decoder(Coordinator)


def create(run: Run, now: int) -> Coordinator:
    """A run before anyone joined."""
    return Coordinator(run, Phase.WaitingForMembers, now, checkpoint=first_checkpoint(run))


def apply(state: Coordinator, event: m.AnyEvent, now: int, seed: int) -> Outcome[Coordinator]:
    """Take one event at `now` (milliseconds); `seed` (64 bits) is used if a round begins."""
    received = _RECEIVE[type(event)](state, event, now)
    if isinstance(received, m.Reason):
        return Outcome(state, (m.refusal(received),))
    after, effects = received
    guards = RunGuards(after, now)
    edge = first(TABLE, after.phase, guards)
    if edge is None:
        return Outcome(after, effects)
    closed, closing = guards.closed
    target = Phase(edge.target)
    entered, entering = ENTER[target](closed, now, seed)
    changed = m.StateChanged(after.phase, target, edge.when)
    new = replace(entered, phase=target, phase_start=now)
    return Outcome(new, (*effects, *closing, changed, *entering))


def next_tick(state: Coordinator, now: int) -> int | None:
    """When to tick if nothing arrives before; None when only a message can move the run.

    It follows from the state: messages that arrive all the time put nothing off.
    """
    limit = _LIMIT.get(state.phase)
    if limit is None:
        return None
    if RunGuards(state, now).over():
        return now
    end = state.phase_start + ms(limit(state))
    times = (end if end > now else None, next_silence(state))
    return min((max(time, now) for time in times if time is not None), default=None)


class RunGuards:
    """A state at a time: what the guards of the table ask."""

    def __init__(self, state: Coordinator, now: int) -> None:
        self.state = state
        self.now = now

    def pausing(self) -> bool:
        return self.state.pause_wanted

    def over(self) -> bool:
        """Whether the present phase has served its purpose, or had its time."""
        limit = _LIMIT.get(self.state.phase)
        if limit is None:
            return False
        timed_out = self.now >= self.state.phase_start + ms(limit(self.state))
        return _SERVED[self.state.phase](self.state, timed_out)

    @cached_property
    def closed(self) -> tuple[Coordinator, Effects]:
        """The state as the present phase leaves it behind."""
        close = CLOSE.get(self.state.phase)
        return close(self.state, self.now) if close else (self.state, ())

    @property
    def after(self) -> Coordinator:
        return self.closed[0]

    def drained(self) -> bool:
        return self.over() and drained(self.after)


def _needs_no_cooldown(state: Coordinator) -> bool:
    return done(state) and agreed(state) and not state.run.model.checkpoint


TABLE: tuple[Edge[RunGuards], ...] = (
    Edge("WaitingForMembers", "Paused", "the owner pauses", RunGuards.pausing),
    Edge(
        "WaitingForMembers",
        "Warmup",
        "init_min_clients joined and the extra time passed",
        RunGuards.over,
    ),
    Edge("Warmup", "Paused", "the owner pauses", RunGuards.pausing),
    Edge("Warmup", "WaitingForMembers", "fewer than min_clients", lambda at: too_few(at.state)),
    Edge("Warmup", "RoundTrain", "all are ready, or were waited for long enough", RunGuards.over),
    Edge(
        "RoundTrain",
        "RoundWitness",
        "a quorum of witnesses sent proofs, or all who stay, or max_round_train_time passed",
        RunGuards.over,
    ),
    Edge(
        "RoundWitness",
        "Finished",
        "drained, total_steps reached, and the run stores nothing",
        lambda at: at.drained() and _needs_no_cooldown(at.after),
    ),
    Edge("RoundWitness", "Cooldown", "the epoch must end and is drained", RunGuards.drained),
    Edge(
        "RoundWitness",
        "RoundTrain",
        "all witnesses who stay were heard, or round_witness_time passed",
        RunGuards.over,
    ),
    Edge(
        "Cooldown",
        "Finished",
        "total_steps reached, and a checkpoint stored or cooldown_time passed",
        lambda at: at.over() and done(at.after),
    ),
    Edge("Cooldown", "Paused", "the owner pauses", lambda at: at.over() and at.pausing()),
    Edge(
        "Cooldown",
        "WaitingForMembers",
        "a checkpoint is stored and verified, or cooldown_time passed",
        RunGuards.over,
    ),
    Edge(
        "Paused",
        "Finished",
        "the owner resumes, and total_steps is reached",
        lambda at: not at.pausing() and done(at.state),
    ),
    Edge("Paused", "WaitingForMembers", "the owner resumes", lambda at: not at.pausing()),
    Edge("Finished", "Paused", "the owner adds steps", lambda at: not done(at.state)),
)

# How long each phase may last, in seconds, and whether it is over before that.
_LIMIT: dict[Phase, Callable[[Coordinator], float]] = {
    Phase.WaitingForMembers: lambda s: s.run.config.waiting_for_members_extra_time,
    Phase.Warmup: newcomers.warmup_limit,
    Phase.RoundTrain: lambda s: s.run.config.max_round_train_time,
    Phase.RoundWitness: lambda s: s.run.config.round_witness_time,
    Phase.Cooldown: lambda s: s.run.config.cooldown_time,
}
_SERVED: dict[Phase, Callable[[Coordinator, bool], bool]] = {
    Phase.WaitingForMembers: lambda s, timed_out: (
        timed_out and len(s.pending) >= s.run.config.clients_to_begin
    ),
    Phase.Warmup: lambda s, timed_out: timed_out or all_ready(s),
    Phase.RoundTrain: lambda s, timed_out: (
        timed_out or len(s.round.witnesses) >= s.quorum(s.round) or all_heard(s)
    ),
    Phase.RoundWitness: lambda s, timed_out: timed_out or all_heard(s),
    Phase.Cooldown: lambda s, timed_out: timed_out or s.epoch.checkpointed or nothing_to_store(s),
}

_RECEIVE: dict[type, Callable[[Coordinator, Any, int], receive.Received]] = {
    m.Tick: tick,
    m.Join: receive.join,
    m.Ready: receive.ready,
    m.OpportunisticWitness: receive.witness,
    m.OpportunisticCooldown: receive.opportunistic_cooldown,
    m.HealthCheck: receive.health_check,
    m.CallGone: receive.call_gone,
    m.Withdraw: receive.withdraw,
    m.Pause: receive.pause,
    m.Resume: receive.resume,
    m.Update: receive.update,
}
