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
    """Whether a quorum of the newest round's witnesses agreed on the model."""
    return state.epoch.agreed_height == state.round.height


def drained(state: Coordinator) -> bool:
    """Whether the last results are applied and their model agreed on, or never will be."""
    last = state.epoch.last_height
    if last is None:
        return False
    closing = last + state.run.config.delay + 1
    height = state.round.height
    if state.active == 0 or height >= closing + CLOSING_TRIES:
        return True
    return height >= closing and agreed(state)


def nothing_to_store(state: Coordinator) -> bool:
    return not state.run.model.checkpoint or not agreed(state) or state.active == 0


def all_ready(state: Coordinator) -> bool:
    gone = sum(bit(state.epoch.ready, place) for place in state.epoch.absent)
    return count_bits(state.epoch.ready) - gone == state.active
