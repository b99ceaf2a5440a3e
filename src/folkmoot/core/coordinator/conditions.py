"""What the guards of the table ask about a state."""

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
    """Whether the newest round's witnesses agreed on the model that the epoch hands on.

    Only a round after the last results were judged speaks of that model: an epoch that everyone
    leaves before has trained samples that nobody attested.
    """
    epoch = state.epoch
    if epoch.last_height is None or epoch.agreed_height != state.round.height:
        return False
    return state.round.height >= _closing(state, epoch.last_height)


def drained(state: Coordinator) -> bool:
    """Whether the last results are applied and their model agreed on, or never will be."""
    last = state.epoch.last_height
    if last is None:
        return False
    tried = state.round.height >= _closing(state, last) + CLOSING_TRIES
    return state.active == 0 or tried or agreed(state)


def _closing(state: Coordinator, last: int) -> int:
    """The first round whose witnesses hold a model with the results of round `last` in it."""
    return last + state.run.config.delay + 1


def nothing_to_store(state: Coordinator) -> bool:
    return not state.run.model.checkpoint or not agreed(state) or state.active == 0


def all_ready(state: Coordinator) -> bool:
    gone = sum(bit(state.epoch.ready, place) for place in state.epoch.absent)
    return count_bits(state.epoch.ready) - gone == state.active
