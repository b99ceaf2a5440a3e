"""What the guards of the table ask about a state."""

from math import inf

from folkmoot.core.coordinator.state import Coordinator, bit, count_bits

# How often an epoch's last round is repeated when its witnesses do not agree on the model.
CLOSING_TRIES = 3


def ms(seconds: float) -> int:
    return round(seconds * 1000)


def too_few(state: Coordinator) -> bool:
    return state.active < state.run.config.min_clients


def done(state: Coordinator) -> bool:
    return state.progress.step >= state.run.config.total_steps


def agreed(state: Coordinator) -> bool:
    """Whether a quorum agreed on the model that the epoch hands on.

    The model of an earlier round does not count: it lacks results that were given out as work.
    """
    height = state.round.height
    return _closing(state) <= height == state.epoch.agreed_height


def drained(state: Coordinator) -> bool:
    """Whether the last results are applied and their model agreed on, or never will be."""
    if state.epoch.last_height is None:
        return False
    given_up = state.round.height >= _closing(state) + CLOSING_TRIES
    return state.active == 0 or given_up or agreed(state)


def _closing(state: Coordinator) -> float:
    """The first round whose witnesses hold the model with all results of the epoch in it."""
    last = state.epoch.last_height
    return inf if last is None else last + state.run.config.delay + 1


def nothing_to_store(state: Coordinator) -> bool:
    stored = state.epoch.saved and state.checkpoint.model_hash == state.model_hash
    return not state.run.model.checkpoint or not agreed(state) or state.active == 0 or stored


def all_heard(state: Coordinator) -> bool:
    """Whether every elected witness was heard; nobody waits for one that is about to leave."""
    current = state.round
    unheard = state.elected(current) - len(current.witnesses)
    leaving = {place for place, _ in state.epoch.leaving} if unheard else set()
    if unheard > len(leaving):
        return False
    heard = {witness.proof.index for witness in current.witnesses}
    indices = {state.index(current, place) for place in leaving} - heard
    committee = state.committee(current) if indices else None
    return unheard == sum(
        committee.get_witness(i).witness for i in indices if committee and i is not None
    )


def all_ready(state: Coordinator) -> bool:
    gone = sum(bit(state.epoch.ready, place) for place in state.epoch.absent)
    return count_bits(state.epoch.ready) - gone == state.active
