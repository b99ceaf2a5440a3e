"""What a client waits for while it has no part in an epoch, in words."""

from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator.receive import IN_EPOCH, member

# Beyond so many they are not counted down: thousands may come one by one.
COUNTED = 16


def waits_for(state: Coordinator, identity: bytes) -> str:
    """What the run must do next for `identity` to train; "" while it takes part."""
    if state.phase is Phase.Paused:
        return "waits: the owner paused the run"
    if state.phase in IN_EPOCH:
        if member(state, identity) is not None:
            return ""
        return f"waits for the next epoch; epoch {state.epoch_number} is under way without us"
    if state.phase is Phase.WaitingForMembers:
        needed = state.run.config.clients_to_begin
        missing = needed - len(state.pending)
        if missing > COUNTED:
            return f"waits for more clients: an epoch begins with {needed}"
        if missing > 0:
            others = "1 more client" if missing == 1 else f"{missing} more clients"
            return f"waits for {others}: an epoch begins with {needed}"
        return "waits for the epoch to begin"
    return ""
