"""What each message does to the state, and when it is refused.

Every function takes the state, a message and the time, and gives either the reason of a refusal
or the new state with its effects. None of them changes the run's phase: the table does.
"""

import re
from collections.abc import Iterable
from itertools import pairwise

from msgspec.structs import replace

from folkmoot.core import bloom
from folkmoot.core.config import all_broken
from folkmoot.core.coordinator import absence, checkpoints, newcomers
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.audits import duties
from folkmoot.core.coordinator.changes import When, changes
from folkmoot.core.coordinator.messages import Reason
from folkmoot.core.coordinator.standing import is_out
from folkmoot.core.coordinator.state import (
    VITAL,
    VITALS_IN_PIECE,
    Checkpoint,
    CheckpointSource,
    Coordinator,
    Epoch,
    Left,
    Pending,
    Phase,
    Progress,
    Saving,
    Witness,
    bit,
    first_checkpoint,
    trained,
    with_bits,
)
from folkmoot.core.identity import ID_BYTES

Effects = tuple[m.Effect, ...]
Received = Reason | tuple[Coordinator, Effects]

IN_EPOCH = (Phase.Warmup, Phase.RoundTrain, Phase.RoundWitness, Phase.Cooldown)
IN_ROUND = (Phase.RoundTrain, Phase.RoundWitness)
HALTED = (Phase.Paused, Phase.Finished)
HASH_BYTES = 32
ADDRESS_MAX = 256
SPEED_MAX = 2**31
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
SEEN_MAX = 2**32 - 1


def member(state: Coordinator, identity: bytes) -> int | None:
    """The place of a client that is in this epoch and has not left."""
    if state.phase not in IN_EPOCH:
        return None
    place = state.find(identity)
    return None if place is None or state.epoch.clients[place].left else place


def _speaker(
    state: Coordinator, sender: bytes, epoch: int, right_round: bool = True
) -> int | Reason:
    """The place of a member that speaks of this epoch, and of the right round of it."""
    if epoch != state.epoch_number:
        return Reason.WrongEpoch
    if not right_round:
        return Reason.WrongRound
    place = member(state, sender)
    return Reason.NotAMember if place is None else place


def join(state: Coordinator, message: m.Join, now: int) -> Received:
    if len(message.sender) != ID_BYTES:
        return Reason.WrongId
    if message.run_id != state.run.run_id:
        return Reason.WrongRun
    if state.phase is Phase.Finished:
        return Reason.Finished
    if message.sender in state.expelled:
        return Reason.Expelled
    if is_out(state, message.sender):
        return Reason.Ejected
    if len(message.model_hash) not in (0, HASH_BYTES):
        return Reason.WrongHash
    if len(message.address) > ADDRESS_MAX:
        return Reason.WrongAddress
    if member(state, message.sender) is not None:
        return Reason.AlreadyMember
    known = state.pending.get(message.sender)
    proven = known.proven if known else newcomers.is_proven(state, message.sender)
    pending, joined = state.pending, list[m.Effect]()
    if known is None and len(pending) >= state.run.config.max_clients:
        crowded = newcomers.gives_way(state) if proven else None
        if crowded is None:
            return Reason.RunFull
        pending = pending.drop(crowded.id)
        joined.append(m.ClientRemoved(crowded.id, Left.Crowded))
    if known is None:
        joined.append(m.ClientJoined(message.sender))
    speed = known.speed if known else 0
    entry = Pending(message.sender, now, message.address, speed, message.model_hash, proven)
    return replace(state, pending=pending.put(entry)), tuple(joined)


def ready(state: Coordinator, message: m.Ready, now: int) -> Received:
    if state.phase is not Phase.Warmup:
        return Reason.WrongState
    place = _speaker(state, message.sender, message.epoch)
    if isinstance(place, Reason):
        return place
    if bit(state.epoch.ready, place):
        return Reason.Duplicate
    state = absence.spoke(state, place)
    epoch = replace(state.epoch, ready=with_bits(state.epoch.ready, (place,)))
    if bit(epoch.proven, place):
        epoch = replace(epoch, proven_ready=min(max(now - epoch.started, 0), SEEN_MAX))
    return replace(state, epoch=epoch), ()


def witness(state: Coordinator, message: m.OpportunisticWitness, now: int) -> Received:
    if state.phase not in IN_ROUND:
        return Reason.WrongState
    right_round = message.height == state.round.height
    place = _speaker(state, message.sender, message.epoch, right_round)
    if isinstance(place, Reason):
        return place
    refusal = _wrong_place(state, message, place) or _wrong_content(state, message)
    if refusal:
        return refusal
    # Last, because it costs a few hundred hashes.
    true_proof = state.committee(state.round).get_witness(message.proof.index)
    if not true_proof.witness:
        return Reason.NotAWitness
    if true_proof != message.proof:
        return Reason.WrongProof
    if (message.passed or message.failed) and not _is_given(state, message, place):
        return Reason.WrongAudit
    heard = Witness(
        message.proof,
        message.participant_bloom,
        message.broadcast_bloom,
        message.broadcast_merkle,
        message.model_hash,
        message.screened,
        message.passed,
        message.failed,
    )
    state = absence.spoke(state, place)
    current = replace(state.round, witnesses=(*state.round.witnesses, heard))
    epoch = replace(state.epoch, rounds=(*state.epoch.rounds[:-1], current))
    accepted = m.WitnessAccepted(message.sender, message.height, message.metadata)
    return replace(state, epoch=epoch), (accepted,)


def _wrong_place(state: Coordinator, message: m.OpportunisticWitness, place: int) -> Reason | None:
    if message.proof.index != state.index(state.round, place):
        return Reason.WrongIndex
    if not message.proof.witness:
        return Reason.NotAWitness
    if any(w.proof.index == message.proof.index for w in state.round.witnesses):
        return Reason.Duplicate
    return None


def _wrong_content(state: Coordinator, message: m.OpportunisticWitness) -> Reason | None:
    clients = len(state.epoch.clients)
    for bits in (message.participant_bloom, message.broadcast_bloom):
        if len(bits) * 8 != bloom.bloom_bits(clients):
            return Reason.WrongBloom
        if bloom.overfull(bits, clients):
            return Reason.FullBloom
    if {len(message.broadcast_merkle), len(message.model_hash)} != {HASH_BYTES}:
        return Reason.WrongHash
    places = message.screened
    if places and not state.run.config.screening:
        return Reason.WrongScreening
    if places and not (_rise(places) and 0 <= places[0] <= places[-1] < clients):
        return Reason.WrongScreening
    return None


def _is_given(state: Coordinator, message: m.OpportunisticWitness, place: int) -> bool:
    """Whether the seed gave the client at a place these results to audit, each for one verdict."""
    given = set(duties(state, state.round, place))
    passed, failed = message.passed, message.failed
    apart = not set(passed) & set(failed)
    return apart and _rise(passed) and _rise(failed) and {*passed, *failed} <= given


def _rise(places: tuple[int, ...]) -> bool:
    return all(a < b for a, b in pairwise(places))


def opportunistic_cooldown(
    state: Coordinator, message: m.OpportunisticCooldown, now: int
) -> Received:
    saving = state.epoch.saving
    if saving is not None and message.model_hash == saving.model_hash:
        return _saved(state, saving, message, now)
    if state.phase is not Phase.Cooldown or state.epoch.cooldown is None:
        return Reason.WrongState
    place = _speaker(state, message.sender, message.epoch)
    if isinstance(place, Reason):
        return place
    if place not in absence.storing(state):
        return Reason.NotACheckpointer
    if state.epoch.checkpointed:
        return Reason.Duplicate
    if (
        message.model_hash != state.model_hash
        or state.checkpoint.source is not CheckpointSource.P2P
    ):
        return Reason.WrongModel
    return _stored(state, replace(state.epoch, checkpointed=True), message, state.progress, now)


def _saved(
    state: Coordinator, saving: Saving, message: m.OpportunisticCooldown, now: int
) -> Received:
    """A model of the epoch under way is stored; the one it began with is where it was."""
    place = _speaker(state, message.sender, message.epoch)
    if isinstance(place, Reason):
        return place
    if place not in checkpoints.savers(state):
        return Reason.NotACheckpointer
    epoch = replace(state.epoch, saving=None, saved=True)
    return _stored(state, epoch, message, saving.progress, now)


def _stored(
    state: Coordinator, epoch: Epoch, message: m.OpportunisticCooldown, of: Progress, now: int
) -> Received:
    if not _is_stored_there(state.run.model.checkpoint, message.location):
        return Reason.WrongLocation
    at = now if state.run.config.checkpoint_time else 0
    what = (message.location, message.model_hash, of, at)
    state = replace(state, epoch=epoch, checkpoint=Checkpoint(state.checkpoint.source, *what))
    return state, (m.CheckpointStored(message.location, of.step),)


def _is_stored_there(root: str, location: str) -> bool:
    """Whether it is one plain name in the run's store, spelled the one way there is.

    It is kept as it is told, and everybody loads from it: no other spelling of the same place,
    which one reader may forgive and another not.
    """
    folder, _, name = location.rpartition("/")
    return bool(root) and folder == root.rstrip("/") and _NAME.fullmatch(name) is not None


def health_check(state: Coordinator, message: m.HealthCheck, now: int) -> Received:
    speed = min(max(message.tokens_per_second, 0), SPEED_MAX)
    place = member(state, message.sender)
    if place is None:
        return _sign_of_pending(state, message, now, speed)
    marks: tuple[tuple[int, Left], ...] = ()
    if message.unhealthy:
        accused = _accused(state, message.unhealthy)
        if isinstance(accused, Reason):
            return accused
        marks = accused
    epoch = state.epoch
    piece, at = divmod(place, VITALS_IN_PIECE)
    at *= VITAL.size
    column = epoch.vitals[piece]
    known = VITAL.unpack_from(column, at)[1]
    vital = VITAL.pack(min(max(now - epoch.started, 0), SEEN_MAX), speed or known)
    column = b"".join((column[:at], vital, column[at + VITAL.size :]))
    vitals = (*epoch.vitals[:piece], column, *epoch.vitals[piece + 1 :])
    changed = replace(epoch, vitals=vitals, leaving=epoch.leaving + marks)
    peers = tuple(peer for peer in message.unreachable if member(state, peer) is not None)
    told = (m.PeersUnreachable(message.sender, peers),) if peers else ()
    return replace(state, epoch=changed), told


def _sign_of_pending(state: Coordinator, message: m.HealthCheck, now: int, speed: int) -> Received:
    known = state.pending.get(message.sender)
    if known is None or message.unhealthy:
        return Reason.NotAMember
    entry = replace(known, seen=now, speed=speed or known.speed)
    return replace(state, pending=state.pending.put(entry)), ()


def _accused(
    state: Coordinator, identities: Iterable[bytes]
) -> Reason | tuple[tuple[int, Left], ...]:
    """The marks that an accusation leaves, or why it does not count."""
    if state.phase not in IN_ROUND:
        return Reason.WrongState
    judged = set(state.epoch.judged.unhealthy) if state.epoch.judged else set()
    marked = {place for place, _ in state.epoch.leaving}
    marks = []
    for identity in identities:
        place = state.find(identity)
        if place is None:
            return Reason.UnknownClient
        if place not in judged:
            return Reason.HealthyClient
        if place not in marked and not state.epoch.clients[place].left:
            marked.add(place)
            marks.append((place, Left.Unhealthy))
    return tuple(marks)


def call_gone(state: Coordinator, message: m.CallGone, now: int) -> Received:
    election = state.election
    if election is None:
        return Reason.WrongState
    right_round = message.height == election.height
    place = _speaker(state, message.sender, message.epoch, right_round)
    if isinstance(place, Reason):
        return place
    gone, false = {*message.gone}, {*message.equivocated}
    if {state.find(identity) for identity in gone | false} & {None, place}:
        return Reason.UnknownClient
    index = state.index(election, place)
    if index is None or not state.committee(election).get_witness(index).witness:
        return Reason.NotAWitness
    epoch = replace(
        state.epoch,
        called_gone=absence.call(state.epoch.called_gone, index, state.places(gone)),
        called_false=absence.call(state.epoch.called_false, index, state.places(false)),
    )
    state, expelled = absence.expel(replace(state, epoch=epoch), election)
    state, removed = _leave(state, expelled)
    state, more = _leave(state, absence.gone(state, election))
    return state, (*removed, *more)


def _leave(state: Coordinator, leaving: list[tuple[int, Left]]) -> tuple[Coordinator, Effects]:
    """Without them now; or, as a round goes on with the roster it began with, when it ends."""
    if state.phase not in IN_ROUND:
        return remove(state, leaving)
    epoch = replace(state.epoch, leaving=(*state.epoch.leaving, *leaving))
    return replace(state, epoch=epoch), ()


def withdraw(state: Coordinator, message: m.Withdraw, now: int) -> Received:
    place = member(state, message.sender)
    if place is None:
        if state.pending.get(message.sender) is None:
            return Reason.NotAMember
        gone = replace(state, pending=state.pending.drop(message.sender))
        return gone, (m.ClientRemoved(message.sender, Left.Withdrew),)
    if (place, Left.Withdrew) in state.epoch.leaving:
        return Reason.Duplicate
    return _leave(state, [(place, Left.Withdrew)])


def remove(state: Coordinator, leaving: Iterable[tuple[int, Left]]) -> tuple[Coordinator, Effects]:
    """Without these clients; the first reason given for each counts."""
    why: dict[int, Left] = {}
    for place, reason in leaving:
        if not state.epoch.clients[place].left:
            why.setdefault(place, reason)
    if not why:
        return state, ()
    clients = list(state.epoch.clients)
    for place, reason in why.items():
        clients[place] = replace(clients[place], left=reason)
    absent = tuple(sorted({*state.epoch.absent, *why}))
    epoch = replace(state.epoch, clients=tuple(clients), absent=absent)
    removed = tuple(m.ClientRemoved(clients[place].id, why[place]) for place in sorted(why))
    return replace(state, epoch=epoch), removed


def pause(state: Coordinator, message: m.Pause, now: int) -> Received:
    if state.phase is Phase.Finished:
        return Reason.Finished
    if state.pause_wanted:
        return Reason.AlreadyPausing
    return replace(state, pause_wanted=True), ()


def resume(state: Coordinator, message: m.Resume, now: int) -> Received:
    if not state.pause_wanted:
        return Reason.NotPausing
    return replace(state, pause_wanted=False), ()


def update(state: Coordinator, message: m.Update, now: int) -> Received:
    if message.run.run_id != state.run.run_id:
        return Reason.WrongRun
    if any(all_broken(message.run)):
        return Reason.BadConfig
    changed = changes(state.run, message.run)
    needs = {change.when for change in changed}
    if state.phase in IN_EPOCH and needs - {When.AnyTime}:
        return Reason.NotHalted
    if When.BeforeTraining in needs:
        if trained(state):
            return Reason.Trained
        state = replace(state, checkpoint=first_checkpoint(message.run))
    # A finished run that is given more steps waits for the owner, like a paused one.
    pausing = state.pause_wanted or state.phase in HALTED
    told = m.Updated(tuple(map(str, changed)))
    return replace(state, run=message.run, pause_wanted=pausing), (told,)
