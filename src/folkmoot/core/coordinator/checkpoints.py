"""Checkpoints within an epoch: when one is due, who stores it, and what it has learnt.

When a round closes and a quorum agreed on the hash of the model that the round stands on, that
model can be stored: every client holds it, and takes a copy before it learns anything else. Two are
elected by the round's own seed; nobody waits for them. What counts is stored under the agreed hash,
with the progress that is in it: rounds whose results it lacks are owed. A rewind goes to it.
Whoever is elected has as long as for a checkpoint in Cooldown, then the next model is the turn of
others.
"""

from msgspec.structs import replace

from folkmoot.core.coordinator import absence
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import merge
from folkmoot.core.coordinator.conditions import ms
from folkmoot.core.coordinator.state import Coordinator, Phase, Progress, Round, Saving

# One may hang, or lie; more would only store the same bytes once more.
SAVERS = 2


def held_progress(state: Coordinator) -> Progress:
    """What the model has learnt that the witnesses of the present round attest, as it closes."""
    first = state.round.height - state.run.config.delay
    lacking = [one for one in state.epoch.rounds if one.height >= first]
    owed = (*state.progress.owed, *(span for one in lacking for span in one.spans))
    # The present round is not counted yet; those before it are.
    counted = sum(bool(one.spans) for one in lacking if one.height < state.round.height)
    return replace(state.progress, step=state.progress.step - counted, owed=merge(owed))


def begin_saving(
    state: Coordinator, by: Round, progress: Progress, now: int
) -> tuple[Coordinator, tuple[m.Effect, ...]]:
    """Have the model of `by`, which was agreed on just now, stored if it is time."""
    if not _due(state, progress, now):
        return state, ()
    election = Round(by.height, by.step, by.seed, absent=by.absent)
    saving = Saving(election, state.model_hash, progress, now)
    state = replace(state, epoch=replace(state.epoch, saving=saving))
    wanted = m.CheckpointWanted(state.epoch_number, len(savers(state)), state.model_hash)
    return state, (wanted,)


def _due(state: Coordinator, progress: Progress, now: int) -> bool:
    config, epoch, kept = state.run.config, state.epoch, state.checkpoint
    new = progress.step - kept.progress.step
    if not state.run.model.checkpoint or epoch.last_height is not None or new <= 0:
        return False
    if epoch.saving and now < epoch.saving.since + ms(config.cooldown_time):
        return False
    since = now - (kept.stored or epoch.started)
    by_steps, by_time = config.checkpoint_steps, ms(config.checkpoint_time)
    return 0 < by_steps <= new or 0 < by_time <= since


def savers(state: Coordinator) -> frozenset[int]:
    """The places whose clients store the model that is wanted now."""
    saving = state.epoch.saving
    return frozenset() if saving is None else absence.first_elected(state, saving.election, SAVERS)


def is_wanted(state: Coordinator, claim: m.OpportunisticCooldown) -> bool:
    """Whether a checkpoint of this model is still to be stored."""
    saving = state.epoch.saving
    in_time = state.phase is Phase.Cooldown and not state.epoch.checkpointed
    return in_time or (saving is not None and saving.model_hash == claim.model_hash)


def wanted_step(state: Coordinator, model_hash: bytes) -> int:
    """The step of the model that is stored under this hash."""
    saving = state.epoch.saving
    told = saving.progress if saving and saving.model_hash == model_hash else state.progress
    return told.step
