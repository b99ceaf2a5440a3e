"""What closing a phase settles, and what entering one sets up."""

from collections.abc import Callable

import numpy as np
from msgspec.structs import replace

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator import newcomers
from folkmoot.core.coordinator.assignment import (
    Share,
    Span,
    cut,
    merge,
    total,
    weights_from_speeds,
)
from folkmoot.core.coordinator.audits import audited_round, found
from folkmoot.core.coordinator.checkpoints import begin_saving, held_progress
from folkmoot.core.coordinator.committee import checkpointers
from folkmoot.core.coordinator.conditions import agreed, done, ms, nothing_to_store, too_few
from folkmoot.core.coordinator.health import agreed_model, judge
from folkmoot.core.coordinator.receive import Effects, remove
from folkmoot.core.coordinator.standing import count_audits, weigh
from folkmoot.core.coordinator.state import (
    BEFORE_ROUNDS,
    STORED_ROUNDS,
    CheckpointSource,
    Client,
    Coordinator,
    Epoch,
    Judged,
    Left,
    Pending,
    Phase,
    Progress,
    Round,
    bit,
    vitals_of,
    with_bits,
)
from folkmoot.core.registry import registry_of
from folkmoot.core.schedule import batch_size

WITHOUT_ROUNDS = (Phase.Warmup, Phase.Cooldown)


def tick(state: Coordinator, message: m.Tick, now: int) -> tuple[Coordinator, Effects]:
    """Nobody waits for the silent: they leave those who wait, and a phase without rounds."""
    oldest = now - ms(state.run.config.health_check_timeout)
    gone = [p.id for p in state.pending if p.seen < oldest]
    pending = state.pending
    for identity in gone:
        pending = pending.drop(identity)
    effects: Effects = tuple(m.ClientRemoved(identity, Left.Silent) for identity in gone)
    if gone:
        state = replace(state, pending=pending)
    if state.phase in WITHOUT_ROUNDS:
        state, removed = remove(state, _silent(state, now))
        effects += removed
    return state, effects


def next_silence(state: Coordinator) -> int | None:
    """When the next tick removes somebody who is not heard before then."""
    seen = [p.seen for p in state.pending]
    if state.phase in WITHOUT_ROUNDS:
        present = np.delete(state.vitals()["seen"], state.epoch.absent)
        seen += [state.epoch.started + int(present.min())] if present.size else []
    return min(seen) + ms(state.run.config.health_check_timeout) + 1 if seen else None


def _silent(state: Coordinator, now: int) -> list[tuple[int, Left]]:
    allowed = now - state.epoch.started - ms(state.run.config.health_check_timeout)
    places = (state.vitals()["seen"].astype("i8") < allowed).nonzero()[0].tolist()
    return [(place, Left.Silent) for place in places]


def _close_round(state: Coordinator, now: int) -> tuple[Coordinator, Effects]:
    """Judge what the witnesses were asked about, then let go of those who left."""
    state = _void(state)
    current = state.round
    enough = len(current.witnesses) >= state.quorum(current)
    held = held_progress(state)
    state, judged = _judge(state)
    state, audited = _audit(state)
    model_hash = agreed_model(state, current)
    if model_hash is not None:
        epoch = replace(state.epoch, agreed_height=current.height)
        state = replace(state, epoch=epoch, model_hash=model_hash)
    if not enough:
        heard = tuple(state.place(current, w.proof.index) for w in current.witnesses)
        state = newcomers.note_heard(state, heard)
    leaving = [*state.epoch.leaving, *_silent(state, now), *_silent_witnesses(state, enough)]
    state, removed = remove(state, leaving)
    state = replace(state, epoch=replace(state.epoch, leaving=()))
    if current.spans:
        state = replace(state, progress=replace(state.progress, step=state.progress.step + 1))
    if state.epoch.last_height is None and (not enough or _must_end(state, now)):
        state = replace(state, epoch=replace(state.epoch, last_height=current.height))
    saving: Effects = ()
    if model_hash is not None:
        state, saving = begin_saving(state, current, held, now)
    return state, (*judged, *audited, *removed, *saving)


def _void(state: Coordinator) -> Coordinator:
    """Note in the round whose work nobody learns; all clients read it there."""
    clients = state.epoch.clients if state.expelled else ()
    void = tuple(p for p, client in enumerate(clients) if client.id in state.expelled)
    if not void:
        return state
    rounds = (*state.epoch.rounds[:-1], replace(state.round, void=void))
    return replace(state, epoch=replace(state.epoch, rounds=rounds))


def _must_end(state: Coordinator, now: int) -> bool:
    """Whether the round that closes is the last of its epoch to train."""
    config = state.run.config
    if config.rounds_per_epoch is None:
        time_is_up = now >= state.epoch.started + ms(config.epoch_time)
    else:
        time_is_up = state.round.height + 1 >= config.rounds_per_epoch
    return time_is_up or too_few(state) or done(state) or state.pause_wanted


def _judge(state: Coordinator) -> tuple[Coordinator, Effects]:
    """Settle the round that the newest round's witnesses speak of."""
    work = state.round_at(state.round.height - state.run.config.delay)
    if work is None or not work.spans:
        return state, ()
    judgement = judge(state, state.round, work)
    owed = judgement.owed
    learnt = total(work.spans) - total(owed)
    progress = replace(
        state.progress,
        owed=merge((*state.progress.owed, *owed)),
        tokens=state.progress.tokens + learnt * state.run.model.max_seq_len,
    )
    judged = Judged(work.height, judgement.unhealthy, judgement.screened)
    state = replace(state, progress=progress, epoch=replace(state.epoch, judged=judged))
    settled = m.RoundJudged(work.height, learnt, total(owed), len(judgement.screened))
    state = newcomers.note_learnt(state, judgement.learnt)
    return weigh(state, judgement.screened, judgement.learnt), (settled,)


def _audit(state: Coordinator) -> tuple[Coordinator, Effects]:
    """Note what the auditors of the newest round found."""
    audited, work = found(state, state.round), audited_round(state, state.round)
    if work is None or not any(audited):
        return state, ()
    verdicts = m.ResultsAudited(work.height, len(audited.passed), len(audited.failed))
    return count_audits(state, *audited), (verdicts,)


def _silent_witnesses(state: Coordinator, enough: bool) -> list[tuple[int, Left]]:
    """Without a quorum, the elected witnesses that said nothing leave, so that the rest can go on.

    When nobody said anything the fault is more likely between them and us: then nobody leaves.
    """
    current = state.round
    if enough or not current.witnesses:
        return []
    heard = {witness.proof.index for witness in current.witnesses}
    elected = state.committee(current).witness_indices()
    return [(state.place(current, i), Left.SilentWitness) for i in elected if i not in heard]


def _release(state: Coordinator, trained: bool) -> tuple[Coordinator, Effects]:
    """End the epoch: its clients wait for the next one."""
    holding = state.model_hash if state.checkpoint.source is CheckpointSource.P2P else b""
    back = []
    vitals = state.vitals().tolist()
    for place, client in enumerate(state.epoch.clients):
        if not client.left:
            seen, speed = vitals[place]
            loaded = trained or bit(state.epoch.ready, place)
            held = holding if loaded else client.model_hash
            seen += state.epoch.started
            proven = bit(state.epoch.proven, place)
            back.append(Pending(client.id, seen, client.address, speed, held, proven))
    removed: Effects = ()
    if trained and not state.round.witnesses and not any(entry.proven for entry in back):
        # Not a word of anybody, so others may have their places; who is there joins again.
        removed = tuple(m.ClientRemoved(entry.id, Left.Idle) for entry in back)
        back = []
    pending = registry_of([*state.pending, *back])
    ended = m.EpochEnded(state.epoch_number, trained)
    new = replace(state, epoch_number=state.epoch_number + 1, epoch=Epoch(), pending=pending)
    return new, (*removed, ended)


CLOSE: dict[Phase, Callable[[Coordinator, int], tuple[Coordinator, Effects]]] = {
    Phase.RoundWitness: _close_round,
    Phase.Cooldown: lambda state, now: _release(state, trained=True),
}


def _enter_waiting(state: Coordinator, now: int, seed: int) -> tuple[Coordinator, Effects]:
    if state.phase is Phase.Finished:
        # Clients end with their run: it goes on with who comes, not with who was there.
        removed = tuple(m.ClientRemoved(entry.id, Left.Silent) for entry in state.pending)
        return replace(state, pending=registry_of([])), removed
    return _release(state, trained=False) if state.epoch.clients else (state, ())


def _enter_warmup(state: Coordinator, now: int, seed: int) -> tuple[Coordinator, Effects]:
    chosen = newcomers.choose(state, seed)
    effects: Effects = ()
    newest = state.model_hash
    if state.checkpoint.source is CheckpointSource.P2P and all(
        p.model_hash != newest for p in chosen
    ):
        state, effects = _rewind(state)
    places = len(chosen)
    epoch = Epoch(
        clients=tuple(Client(p.id, p.address, p.model_hash) for p in chosen),
        started=now,
        ready=bytes((places + 7) // 8),
        proven=with_bits(bytes((places + 7) // 8), (at for at, p in enumerate(chosen) if p.proven)),
        vitals=vitals_of([p.speed for p in chosen]),
        warmup=Round(BEFORE_ROUNDS, state.progress.step, seed),
    )
    taken = {p.id for p in chosen}
    pending = registry_of([p for p in state.pending if p.id not in taken])
    started = m.EpochStarted(state.epoch_number, places)
    return replace(state, epoch=epoch, pending=pending), (*effects, started)


def _rewind(state: Coordinator) -> tuple[Coordinator, Effects]:
    """Go back to the stored model, and to the progress that is in it."""
    kept = state.checkpoint
    source = CheckpointSource.Stored if kept.location else CheckpointSource.Ephemeral
    rewound = m.Rewound(state.progress.step, kept.progress.step)
    state = replace(
        state,
        checkpoint=replace(kept, source=source),
        progress=kept.progress,
        model_hash=kept.model_hash,
    )
    return state, (rewound,)


def _enter_train(state: Coordinator, now: int, seed: int) -> tuple[Coordinator, Effects]:
    removed: Effects = ()
    if not state.epoch.rounds:
        state, removed = remove(state, newcomers.unready(state))
    epoch = state.epoch
    progress = state.progress
    spans: Share = ()
    weights = b""
    if epoch.last_height is None:
        spans, progress = _take(state)
        weights = _weights(state) if state.run.config.work_by_speed else b""
    height = state.round.height + 1 if epoch.rounds else 0
    new = Round(height, progress.step, seed, spans, epoch.absent, weights)
    epoch = replace(
        epoch, rounds=(*epoch.rounds, new)[-STORED_ROUNDS:], called_gone=(), called_false=()
    )
    started = m.RoundStarted(state.epoch_number, height, new.step, total(spans))
    return replace(state, epoch=epoch, progress=progress), (*removed, started)


def _weights(state: Coordinator) -> bytes:
    """The weights of those who are here, in the order of the roster."""
    here = [p for p, client in enumerate(state.epoch.clients) if not client.left]
    judged = set(state.epoch.judged.unhealthy) if state.epoch.judged else set()
    failed = [index for index, place in enumerate(here) if place in judged] if judged else []
    return weights_from_speeds(state.vitals()["speed"][here], failed)


def _take(state: Coordinator) -> tuple[Share, Progress]:
    """The samples of a new round: owed ones first, then fresh ones."""
    config, progress = state.run.config, state.progress
    size = batch_size(
        progress.data_index * state.run.model.max_seq_len,
        config.global_batch_size_start,
        config.batch_size_end,
        config.global_batch_size_warmup_tokens,
    )
    due = total(progress.owed)
    again = cut(progress.owed, 0, min(size, due))
    rest = cut(progress.owed, min(size, due), due)
    stop = progress.data_index + size - total(again)
    fresh = (Span(progress.data_index, stop),) if stop > progress.data_index else ()
    return (*again, *fresh), replace(progress, data_index=stop, owed=rest)


def _enter_cooldown(state: Coordinator, now: int, seed: int) -> tuple[Coordinator, Effects]:
    epoch = state.epoch
    election = Round(state.round.height + 1, state.progress.step, seed, absent=epoch.absent)
    wanted: Effects = ()
    if agreed(state):
        state = replace(state, checkpoint=replace(state.checkpoint, source=CheckpointSource.P2P))
        if not nothing_to_store(state):
            count = checkpointers(state.active)
            wanted = (m.CheckpointWanted(state.epoch_number, count, state.model_hash),)
    else:
        state, wanted = _rewind(state)
    epoch = replace(epoch, cooldown=election, called_gone=(), called_false=())
    return replace(state, epoch=epoch, last_epoch=max(now - epoch.started, 0)), wanted


def _enter_finished(state: Coordinator, now: int, seed: int) -> tuple[Coordinator, Effects]:
    if not state.epoch.clients:
        return state, ()
    state = replace(state, checkpoint=replace(state.checkpoint, source=CheckpointSource.P2P))
    return _release(state, trained=True)


ENTER: dict[Phase, Callable[[Coordinator, int, int], tuple[Coordinator, Effects]]] = {
    Phase.WaitingForMembers: _enter_waiting,
    Phase.Warmup: _enter_warmup,
    Phase.RoundTrain: _enter_train,
    Phase.RoundWitness: lambda state, now, seed: (state, ()),
    Phase.Cooldown: _enter_cooldown,
    Phase.Finished: _enter_finished,
    Phase.Paused: _enter_waiting,
}
