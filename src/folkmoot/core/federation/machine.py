"""The coordinator of a federation: STANDBY, ROUND, FINISHED.

The rules, in words:

- Participants register until there is no room; who comes later hears LATER and may try again.
- When enough are connected, some are **selected** and the coordinator is in ROUND i. Only the
  selected may start and end training in that round.
- An update counts once. The same update again is answered as before; another one is refused.
- A round **closes** when its goal is met; or with a quorum, when its deadline has passed or nobody
  is left to wait for. It then waits only for the global model to be written.
- A selected participant that drops out, or whose update is bad, is replaced by a spare within the
  same round. What others delivered is kept. With too few left for a quorum, the coordinator goes
  back to STANDBY and takes up the same round when enough have come back.
- An update that makes no model together with the others is bad after all: it is taken out, and the
  round goes on without it.
- Once half of the updates are there, the others get a time that follows from it, unless the owner
  set a deadline. Who takes longer is left out of the round, and when that happens round after round
  has to register again.
- Participants may say what they find of the model they were given, or the owner of the new one.
  With `stop_after`, it is over when so many in a row are no better than the best.
- An **aggregator** runs the rounds of a coordinator above it: each begins when it is called to it,
  whatever became of the last one, and its updates make a sum and no model.
- FINISHED is the end: nothing changes any more.

A round takes its seed from the event that begins it. Only `TABLE` changes the phase.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from folkmoot.core.federation import messages as m
from folkmoot.core.federation.config import Rules
from folkmoot.core.federation.evaluation import mean_evaluation
from folkmoot.core.federation.rounds import Step, called, ended, is_over, next_round
from folkmoot.core.federation.selection import take
from folkmoot.core.federation.state import Best, Delivery, Phase, State
from folkmoot.core.machine import Outcome, decoder
from folkmoot.core.machine import encode as encode
from folkmoot.core.table import Edge, first

MAX_SAMPLES = 2**31 - 1
MAX_EXPELLED = 65_536
#: Of how many who are not connected bad updates are remembered.
MAX_STRUCK = 65_536


class Task(NamedTuple):
    """What a selected participant is asked to do."""

    round: int
    epochs: int
    epoch_base: int
    initial: bool
    global_digest: str


class Advert(NamedTuple):
    """What a heartbeat is answered with; `expected` while an update is still awaited."""

    phase: str
    round: int
    expected: bool


AnyEvent = m.AnyEvent
decode = decoder(State)


def create(
    rules: Rules, *, initial: bool = False, global_digest: str = "", region: bool = False
) -> State:
    """A federation before its first participant; a `region` is that of an aggregator."""
    return State(rules=rules, initial=initial, global_digest=global_digest, region=region)


def apply(state: State, event: m.AnyEvent, now: int, seed: int) -> Outcome[State]:
    """Take one event at `now` (milliseconds); `seed` (64 bits) is used if a round begins."""
    changed, effects = _RECEIVE[type(event)](state, event, now)
    if changed is state:
        return Outcome(state, effects)
    return Outcome(*_settle(changed, effects, now, seed))


# What participants may ask; nothing changes.


def advert(state: State, id: str) -> Advert | m.Refused:
    """The answer to a heartbeat: ROUND only to the selected."""
    if id not in state.members:
        return _unknown(id)
    if state.phase == Phase.FINISHED:
        return Advert(Phase.FINISHED, state.round, False)
    if state.phase == Phase.STANDBY or id not in state.selected:
        return Advert(Phase.STANDBY, state.round, False)
    return Advert(Phase.ROUND, state.round, not state.closing and not state.delivered(id))


def task(state: State, id: str) -> Task | m.Refused:
    """The answer to StartTrainingRound."""
    if id not in state.members:
        return _unknown(id)
    if state.phase != Phase.ROUND:
        return _outside_round(state)
    if id not in state.selected:
        return _not_selected(state, id)
    if state.closing and not state.staleness(state.round):
        return m.Refused(m.Reason.Closed, f"round {state.round} closed with enough updates")
    return Task(
        state.round, state.epochs, state.epoch_base, state.initial_round, state.global_digest
    )


def admits(state: State, id: str, round_: int, digest: str, samples: int) -> Any:
    """Whether an update may be delivered: None, or the answer (`Counted` again, or `Refused`).

    The shell asks before it fetches and checks the update, and `Delivered` asks once more.
    """
    key = f"{round_}/{id}"
    if known := state.deliveries.get(key) or state.history.get(key):
        if (known.digest, known.samples) == (digest, samples):
            return m.Counted(key, again=True)
        return m.Refused(
            m.Reason.DifferentUpdate, f"{key} was delivered before, with other contents"
        )
    if id not in state.members:
        return _unknown(id)
    return _timely(state, round_) or _deliverer(state, id, round_) or _samples(state, samples)


def _timely(state: State, round_: int) -> m.Refused | None:
    if state.phase != Phase.ROUND:
        return _outside_round(state)
    if round_ > state.round:
        return m.Refused(
            m.Reason.FutureRound, f"round {round_} has not begun; it is round {state.round}"
        )
    staleness = state.staleness(round_)
    if round_ < state.round - staleness:
        return m.Refused(m.Reason.StaleRound, f"round {round_} is over; it is round {state.round}")
    if state.closing and round_ <= state.round - staleness:
        # Only an update that is fresh enough for the next model may still come.
        return m.Refused(m.Reason.Closed, f"round {round_} closed with enough updates")
    return None


def _deliverer(state: State, id: str, round_: int) -> m.Refused | None:
    if round_ == state.round and id not in state.selected:
        return _not_selected(state, id)
    return None


def _samples(state: State, samples: int) -> m.Refused | None:
    least = 0 if state.initial_round else 1
    if least <= samples <= MAX_SAMPLES:
        return None
    return m.Refused(m.Reason.BadSamples, f"{samples} samples; expected {least} to {MAX_SAMPLES}")


def _unknown(id: str) -> m.Refused:
    return m.Refused(m.Reason.UnknownParticipant, f"{id} is not connected: rendezvous first")


def _outside_round(state: State) -> m.Refused:
    return m.Refused(m.Reason.OutsideRound, f"no round is in progress: the state is {state.phase}")


def _not_selected(state: State, id: str) -> m.Refused:
    return m.Refused(m.Reason.NotSelected, f"{id} is not selected for round {state.round}")


# Events.


def _rendezvous(state: State, event: m.Rendezvous, now: int) -> Step:
    if event.id in state.expelled:
        return state, (m.Refused(m.Reason.Expelled, f"{event.id} delivered too many bad updates"),)
    if lacking := state.rules.lacking(event.properties):
        return state, (m.Refused(m.Reason.NotEligible, lacking),)
    if event.id in state.members:
        return state, (m.Reply("ACCEPT"),)
    if state.phase == Phase.FINISHED or len(state.members) >= state.rules.capacity:
        return state, (m.Reply("LATER"),)
    members = tuple(sorted((*state.members, event.id)))
    return replace(state, members=members), (m.Reply("ACCEPT"), m.Joined(event.id))


def _dropped(state: State, event: m.Dropped, now: int) -> Step:
    gone = [id for id in event.ids if id in state.members]
    if state.phase == Phase.FINISHED or not gone:
        return state, ()
    return _without(state, gone), tuple(m.Left(id, "silent") for id in gone)


def _delivered(state: State, event: m.Delivered, now: int) -> Step:
    if answer := admits(state, event.id, event.round, event.digest, event.samples):
        return state, (answer,)
    told = (event.samples, event.evaluation, event.participants)
    delivery = Delivery(event.id, event.round, event.digest, *told)
    deliveries = {**state.deliveries, delivery.key: delivery}
    missed = {id: n for id, n in state.missed.items() if id != event.id}
    changed = replace(state, deliveries=deliveries, missed=missed)
    return changed, (m.Counted(delivery.key, again=False),)


def _quarantined(state: State, event: m.Quarantined, now: int) -> Step:
    if refused := admits(state, event.id, event.round, "", 1):
        return state, (refused,)
    changed, effects = _struck(state, event.id)
    selected = tuple(id for id in changed.selected if id != event.id)
    return replace(changed, selected=selected), effects


def _spoiled(state: State, event: m.Spoiled, now: int) -> Step:
    bad = [state.deliveries[key].id for key in event.keys if key in state.deliveries]
    if not bad or state.phase != Phase.ROUND or state.written is not None:
        return state, ()
    kept = {key: d for key, d in state.deliveries.items() if key not in event.keys}
    selected = tuple(id for id in state.selected if id not in bad)
    state = replace(state, deliveries=kept, closing=(), selected=selected)
    effects: tuple[m.Effect, ...] = ()
    for id in sorted(set(bad)):
        state, more = _struck(state, id)
        effects += more
    return state, effects


def _struck(state: State, id: str) -> Step:
    """One more bad update of `id`, which has no further part in the round."""
    strikes = state.strikes.get(id, 0) + 1
    changed = replace(
        state,
        strikes=_remembered(state, {**state.strikes, id: strikes}),
        quarantined=tuple(sorted({*state.quarantined, id})),
    )
    if not 0 < state.rules.max_strikes <= strikes:
        return changed, ()
    return _expel(changed, id), (m.Left(id, f"expelled after {strikes} bad updates"),)


def _expel(state: State, id: str) -> State:
    return replace(
        _without(state, [id]),
        expelled=(*state.expelled, id)[-MAX_EXPELLED:],
        strikes={other: n for other, n in state.strikes.items() if other != id},
    )


def _remembered(state: State, strikes: dict[str, int]) -> dict[str, int]:
    """Those that can matter: none without a limit, and never more than there is room for.

    The one to forget follows from the ids and counts alone, not from who came first: a state that
    was restored from a snapshot must choose the same.
    """
    if not state.rules.max_strikes:
        return {}
    away = [id for id in strikes if id not in state.members]
    if len(away) > MAX_STRUCK:
        del strikes[min(away, key=lambda id: (strikes[id], id))]
    return strikes


def _excused(state: State, event: m.Excused, now: int) -> Step:
    late = [id for id in state.outstanding() if id in event.ids]
    if state.phase != Phase.ROUND or event.round != state.round or not late:
        return state, ()
    selected = tuple(id for id in state.selected if id not in late)
    return replace(state, selected=selected, excused=tuple(sorted({*state.excused, *late}))), ()


def _late(state: State, event: m.Late, now: int) -> Step:
    late = sorted(id for id in state.outstanding() if id in event.ids)
    if state.phase != Phase.ROUND or event.round != state.round or state.closing or not late:
        return state, ()
    return _leave_out(state, late)


def _leave_out(state: State, late: list[str]) -> Step:
    """Go on without these; whoever is left out again and again loses its place."""
    missed = {id: n for id, n in state.missed.items() if id in state.members}
    missed |= {id: missed.get(id, 0) + 1 for id in late}
    state = replace(
        state,
        selected=tuple(id for id in state.selected if id not in late),
        late=tuple(sorted({*state.late, *late})),
        missed=missed if state.rules.max_strikes else {},
    )
    effects: tuple[m.Effect, ...] = (m.LeftOut(state.round, tuple(late)),)
    # Somebody else may want the place. Not expelled: an honest one can be slow for a while.
    gone = [id for id in late if 0 < state.rules.max_strikes <= state.missed[id]]
    effects += tuple(m.Left(id, "no update in time, round after round") for id in gone)
    return _without(state, gone), effects


def _lost(state: State, event: m.Lost, now: int) -> Step:
    kept = {key: d for key, d in state.deliveries.items() if key not in event.keys}
    if len(kept) == len(state.deliveries) and not state.excused:
        return state, ()
    return replace(state, deliveries=kept, closing=(), excused=()), ()


def _tick(state: State, event: m.Tick, now: int) -> Step:
    at = next_tick(state, now)
    if at is None or now < at:
        return state, ()
    if not state.patience:
        return replace(state, overdue=True), ()
    # Whoever steps in for them gets as long.
    changed = replace(state, deadline=now + state.patience)
    late = sorted(state.outstanding())
    return _leave_out(changed, late) if late else (changed, ())


def _written(state: State, event: m.Written, now: int) -> Step:
    if not state.closing or event.round != state.round:
        return state, ()
    return _evaluated(replace(state, written=event.digest), event.loss)


def _evaluated(state: State, central: float | None) -> Step:
    """The loss of the new model, as the owner found it; or of the one that it came from."""
    if central is not None:
        round_, loss = state.round + 1, central
    else:
        closing = [state.deliveries[key] for key in state.closing]
        told = [d for d in closing if d.evaluation and d.round == state.round]
        if not told:
            return state, ()
        round_, loss = state.round, mean_evaluation(told).loss
    best = state.best is None or loss < state.best.loss - state.rules.min_improvement
    changed = replace(
        state,
        best=Best(round_, loss) if best else state.best,
        since_best=0 if best else state.since_best + 1,
    )
    return changed, (m.Evaluated(round_, loss, best),)


_RECEIVE: dict[type, Callable[[State, Any, int], Step]] = {
    m.Rendezvous: _rendezvous,
    m.Dropped: _dropped,
    m.Delivered: _delivered,
    m.Quarantined: _quarantined,
    m.Spoiled: _spoiled,
    m.Excused: _excused,
    m.Late: _late,
    m.Lost: _lost,
    m.Tick: _tick,
    m.Written: _written,
    m.Called: called,
    m.Ended: ended,
}


def next_tick(state: State, now: int) -> int | None:
    """When to tick if nothing arrives before; None when no deadline is set."""
    waiting = state.phase == Phase.ROUND and not state.closing and not state.overdue
    return state.deadline if waiting else None


def _without(state: State, gone: list[str]) -> State:
    return replace(state, members=tuple(id for id in state.members if id not in gone))


# What follows: spares step in, rounds close, the phase changes.


def _settle(state: State, effects: tuple[m.Effect, ...], now: int, seed: int) -> Step:
    while True:
        if state.phase == Phase.ROUND and not state.closing and not is_over(state):
            state, more = _top_up(state)
            effects += more
            state, more = _close(_with_patience(state, now))
            effects += more
        edge = first(TABLE, state.phase, state)
        if edge is None:
            return state, effects
        before, state = state.phase, _ENTER[Phase(edge.target)](state, now, seed)
        effects += (m.StateChanged(before, state.phase, edge.when),)


def _with_patience(state: State, now: int) -> State:
    """With half of the updates there, it is known how long the others may take."""
    if state.deadline is not None or 2 * len(state.deliveries) < state.goal:
        return state
    patience = state.rules.patience_ms(now - state.began)
    return replace(state, patience=patience, deadline=now + patience) if patience else state


def _top_up(state: State) -> Step:
    """Ask as many as the round still needs; once it is overdue, stragglers are not counted on."""
    out = {*state.selected, *state.quarantined, *state.excused, *state.late}
    candidates = [id for id in state.members if id not in out]
    counted_on = 0 if state.overdue else len(state.outstanding())
    missing = state.rules.selection(state.goal) - len(state.deliveries) - counted_on
    if state.rules.asynchronous:
        missing = len(candidates)
    if not candidates or missing <= 0:
        return state, ()
    chosen = take(state.rules.controller, candidates, missing, state.round, state.seed)
    selected = tuple(sorted((*state.selected, *chosen)))
    return replace(state, selected=selected), (m.Selected(state.round, tuple(sorted(chosen))),)


def _close(state: State) -> Step:
    count, rules = len(state.deliveries), state.rules
    alone = not state.outstanding()
    suffices = count >= rules.enough(state.goal, state.given_up)
    if count < state.goal and not (suffices and (alone or state.overdue)):
        return state, ()
    keys = tuple(d.key for d in state.ordered())
    return replace(state, closing=keys), (m.Aggregate(state.round, keys),)


def _present(state: State) -> int:
    """Who counts towards the start of a round: the connected, and whoever delivered already."""
    return len({*state.members, *(d.id for d in state.deliveries.values())})


def _ready(state: State) -> bool:
    waits = state.region and state.above is None
    return not waits and _present(state) >= state.rules.min_connected


def _starved(state: State) -> bool:
    if state.closing:
        return False
    asked = len(state.deliveries) + len(state.outstanding())
    return asked < state.rules.enough(state.goal, state.given_up)


def _all_over(state: State) -> bool:
    stalled = 0 < state.rules.stop_after <= state.since_best
    last = stalled or state.round + 1 >= state.rules.rounds
    return is_over(state) and last and not state.region


def _ended_above(state: State) -> bool:
    return state.ended


def _goes_on(state: State) -> bool:
    return is_over(state) and len(state.members) >= state.rules.min_connected


#: The machine. Edges are tried in this order; nothing else changes the phase.
TABLE: tuple[Edge[State], ...] = (
    Edge(Phase.STANDBY, Phase.FINISHED, "the coordinator above has finished", _ended_above),
    Edge(Phase.STANDBY, Phase.ROUND, "enough participants are connected", _ready),
    Edge(Phase.ROUND, Phase.FINISHED, "the last global model is written", _all_over),
    Edge(Phase.ROUND, Phase.FINISHED, "the coordinator above has finished", _ended_above),
    Edge(Phase.ROUND, Phase.ROUND, "the next global model is written", _goes_on),
    Edge(
        Phase.ROUND,
        Phase.STANDBY,
        "the next global model is written, but too few are connected",
        is_over,
    ),
    Edge(
        Phase.ROUND,
        Phase.STANDBY,
        "too few are left for a quorum, and no spare can step in",
        _starved,
    ),
)


def _enter_round(state: State, now: int, seed: int) -> State:
    state = next_round(state)
    wait = state.rules.round_deadline
    return replace(
        state,
        phase=Phase.ROUND,
        seed=seed,
        goal=state.rules.goal(_present(state)),
        began=now,
        patience=0,
        deadline=now + round(wait * 1000) if wait else None,
        overdue=False,
        selected=tuple(sorted({d.id for d in state.deliveries.values()})),
    )


def _enter_standby(state: State, now: int, seed: int) -> State:
    """Selections are void; what was delivered stays, and bad updates may be made good."""
    return replace(
        next_round(state),
        phase=Phase.STANDBY,
        selected=(),
        quarantined=(),
        excused=(),
        late=(),
        deadline=None,
        patience=0,
        overdue=False,
    )


def _enter_finished(state: State, now: int, seed: int) -> State:
    return replace(next_round(state), phase=Phase.FINISHED, selected=(), deliveries={}, closing=())


_ENTER = {Phase.ROUND: _enter_round, Phase.STANDBY: _enter_standby, Phase.FINISHED: _enter_finished}
