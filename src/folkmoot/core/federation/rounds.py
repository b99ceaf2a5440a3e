"""One round after another: the next begins with a model that was written here, or above.

An aggregator's rounds are those of the coordinator above it: `Called` says which, whatever became
of the last one, and `Ended` that there are no more.
"""

from msgspec.structs import replace

from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Phase, State

Step = tuple[State, tuple[m.Effect, ...]]


def called(state: State, event: m.Called, now: int) -> Step:
    """The coordinator above has begun a round."""
    known = state.upcoming or state.above
    if not state.region or state.phase == Phase.FINISHED or event.above == known:
        return state, ()
    if known is not None and event.above.round <= known.round:
        reason = f"round {event.above.round} is called after round {known.round}"
        return state, (m.Refused(m.Reason.StaleRound, reason),)
    changed = replace(state, upcoming=event.above)
    # What waits in STANDBY waits for this round now.
    return (next_round(changed) if state.phase == Phase.STANDBY else changed), ()


def ended(state: State, event: m.Ended, now: int) -> Step:
    """The coordinator above has finished."""
    if not state.region or state.phase == Phase.FINISHED:
        return state, ()
    return replace(state, ended=True), ()


def is_over(state: State) -> bool:
    """Whether the round in progress has nothing left to wait for."""
    return state.written is not None or state.upcoming is not None or state.ended


def next_round(state: State) -> State:
    """Go on to the next round when its global model is written: here, or above."""
    if (above := state.upcoming) is not None:
        # Nobody waits for what there is of the last round any more.
        state = replace(state, above=above, upcoming=None, closing=tuple(state.deliveries))
        return _turn_to(state, above.round, above.epoch_base, above.digest)
    if state.written is None:
        return state
    return _turn_to(state, state.round + 1, state.epoch_base + state.epochs, state.written)


def _turn_to(state: State, round_: int, epoch_base: int, global_digest: str) -> State:
    done = {key: state.deliveries[key] for key in state.closing}
    oldest = state.round - state.rules.max_staleness
    remembered = {**state.history, **done}
    return replace(
        state,
        round=round_,
        epoch_base=epoch_base,
        global_digest=global_digest,
        # Kept so that a retry after a lost reply is known for what it is.
        history={key: d for key, d in remembered.items() if d.round >= oldest},
        deliveries={key: d for key, d in state.deliveries.items() if key not in done},
        quarantined=(),
        excused=(),
        late=(),
        closing=(),
        written=None,
    )
