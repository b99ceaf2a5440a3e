"""What happened between two states of a run, in the words of the core's effects.

The chain keeps states, not effects. Whoever wants to write down or show what happens derives it:
all that people watch a run for, but for what the program is not told (a witness's loss).
"""

from collections.abc import Iterator

from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import total
from folkmoot.core.coordinator.changes import changes
from folkmoot.core.coordinator.committee import checkpointers
from folkmoot.core.coordinator.conditions import ms, nothing_to_store
from folkmoot.core.coordinator.state import Left


def effects_between(before: Coordinator, after: Coordinator, now: int) -> Iterator[m.Effect]:
    """In the order in which the core tells them; `now` is when `after` was seen."""
    if before.run != after.run:
        yield m.Updated(tuple(map(str, changes(before.run, after.run))))
    was, is_ = before.present, after.present
    yield from (m.ClientJoined(identity) for identity in sorted(is_ - was))
    yield from _judged(before, after)
    yield from _removed(before, after, now, was - is_)
    if after.progress.step < before.progress.step:
        yield m.Rewound(before.progress.step, after.progress.step)
    if after.checkpoint.location != before.checkpoint.location:
        yield m.CheckpointStored(after.checkpoint.location, after.checkpoint.progress.step)
    if before.epoch.clients and after.epoch_number != before.epoch_number:
        yield m.EpochEnded(before.epoch_number, before.epoch.cooldown is not None)
    if before.phase is not after.phase:
        yield m.StateChanged(before.phase, after.phase)
    if after.epoch.clients and after.epoch.started != before.epoch.started:
        yield m.EpochStarted(after.epoch_number, len(after.epoch.clients))
    if after.phase is Phase.Cooldown is not before.phase and not nothing_to_store(after):
        count = checkpointers(after.active)
        yield m.CheckpointWanted(after.epoch_number, count, after.model_hash)
    if after.epoch.rounds and after.turn != before.turn:
        current = after.round
        samples = total(current.spans)
        yield m.RoundStarted(after.epoch_number, current.height, current.step, samples)


def _removed(
    before: Coordinator, after: Coordinator, now: int, gone: set[bytes]
) -> Iterator[m.Effect]:
    told = {client.id: client.left for client in after.epoch.clients if client.left}
    told |= {before.epoch.clients[place].id: why for place, why in before.epoch.leaving}
    for identity in sorted(gone):
        yield m.ClientRemoved(identity, told.get(identity) or _unsaid(before, identity, now))


def _unsaid(before: Coordinator, identity: bytes, now: int) -> Left:
    """Where the account does not say why: it was silent for too long, or it withdrew."""
    waiting, place = before.pending.get(identity), before.find(identity)
    seen = now
    if waiting is not None:
        seen = waiting.seen
    elif place is not None:
        seen = before.epoch.started + int(before.vitals()["seen"][place])
    silent = seen + ms(before.run.config.health_check_timeout) < now
    return Left.Silent if silent else Left.Withdrew


def _judged(before: Coordinator, after: Coordinator) -> Iterator[m.Effect]:
    judged = after.epoch.judged or before.epoch.judged
    if after.epoch.judged is None or judged is None or judged == before.epoch.judged:
        return
    work = after.round_at(judged.height)
    if work is not None:
        tokens = after.progress.tokens - before.progress.tokens
        learnt = max(tokens // after.run.model.max_seq_len, 0)
        yield m.RoundJudged(judged.height, learnt, total(work.spans) - learnt)
