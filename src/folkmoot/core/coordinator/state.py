"""The state of a run: one frozen value that encodes to the same bytes everywhere.

What changes with every message is kept in small columns (`ready`, `vitals`), what changes with an
epoch in records, so that a message costs the same in a run of a hundred clients and of ten
thousand. Within an epoch a client keeps its place in `clients` for good, also after it left; a
round lists the places that were `absent` when it began. So a proof of a round stays valid
whoever leaves after it. Times are whole milliseconds.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from enum import StrEnum
from operator import attrgetter
from struct import Struct as Packing

import msgspec
import numpy as np
from numpy.typing import NDArray

from folkmoot.core.bloom import Shape, bloom_shape
from folkmoot.core.coordinator.assignment import Assignment, Share
from folkmoot.core.coordinator.committee import CommitteeSelection, WitnessProof
from folkmoot.core.coordinator.config import MAX_DELAY, Run
from folkmoot.core.quorum import MAX_WITNESSES, witness_quorum
from folkmoot.core.registry import Registry

STATE_VERSION = 1
# A round's results are judged `delay` rounds later and applied at the next: keep one more.
STORED_ROUNDS = MAX_DELAY + 2
# What stands for a round in Warmup; in Cooldown it is the height after the last.
BEFORE_ROUNDS = -1
VITAL = Packing("<II")
VITAL_TYPE = np.dtype([("seen", "<u4"), ("speed", "<u4")])
# Vitals are kept in pieces of this many places: a sign of life copies one piece, not all.
VITALS_IN_PIECE = 512
_id = attrgetter("id")


class Phase(StrEnum):
    WaitingForMembers = "WaitingForMembers"
    Warmup = "Warmup"
    RoundTrain = "RoundTrain"
    RoundWitness = "RoundWitness"
    Cooldown = "Cooldown"
    Finished = "Finished"
    Paused = "Paused"


class Left(StrEnum):
    """Why a client is no longer part of an epoch, or of those who wait for one."""

    Withdrew = "Withdrew"
    Gone = "Gone"  # a quorum of witnesses could not reach it
    Equivocated = "Equivocated"  # a quorum of witnesses heard two results of it for one share
    Silent = "Silent"
    NotReady = "NotReady"  # the rounds began without it
    Idle = "Idle"  # nobody in its epoch did anything
    Crowded = "Crowded"  # its place among those who wait went to a client that has worked
    Unhealthy = "Unhealthy"
    SilentWitness = "SilentWitness"
    Ejected = "Ejected"  # a quorum of witnesses screened its results again and again
    FailedAudits = "FailedAudits"  # its results were no better than guessed, audit after audit


class CheckpointSource(StrEnum):
    """Where a client that joins gets the model from."""

    Ephemeral = "Ephemeral"  # nowhere: everyone initialises it from the run's seed
    Stored = "Stored"
    P2P = "P2P"


class Client(msgspec.Struct, frozen=True, array_like=True):
    """A place in an epoch. Clients stand in the order of their ids."""

    id: bytes
    address: bytes = b""  # where its peers reach it; opaque here
    model_hash: bytes = b""  # of the model it held when the epoch began
    left: Left | None = None


class Pending(msgspec.Struct, frozen=True, array_like=True):
    """A client that waits for the next epoch, and the hash of the model it holds, if any."""

    id: bytes
    seen: int
    address: bytes = b""
    speed: int = 0
    model_hash: bytes = b""
    proven: bool = False  # whether a result of it was attested: `newcomers`


class Witness(msgspec.Struct, frozen=True, array_like=True):
    """What one witness of a round attests."""

    proof: WitnessProof
    participant_bloom: bytes
    broadcast_bloom: bytes
    broadcast_merkle: bytes
    model_hash: bytes
    screened: tuple[int, ...] = ()  # places whose results came, and are not what somebody trained
    passed: tuple[int, ...] = ()  # places whose results it audited, and found trained as assigned
    failed: tuple[int, ...] = ()  # and found not to be


class Ejection(msgspec.Struct, frozen=True, array_like=True):
    """A client that may not come back before an epoch."""

    id: bytes
    until: int


class AuditRecord(msgspec.Struct, frozen=True, array_like=True):
    """How often a client's results passed an audit and failed one, of late."""

    id: bytes
    passed: int = 0
    failed: int = 0

    @property
    def count(self) -> int:
        return self.passed + self.failed


class Round(msgspec.Struct, frozen=True):
    """One round. Without `spans` it trains nothing: it lets earlier results be attested."""

    height: int
    step: int
    seed: int
    spans: Share = ()
    absent: tuple[int, ...] = ()
    weights: bytes = b""
    witnesses: tuple[Witness, ...] = ()
    void: tuple[int, ...] = ()  # places of expelled clients: what they made is not learnt


class Progress(msgspec.Struct, frozen=True):
    """How far training is: exactly what the agreed model has learnt from, and what comes next."""

    step: int = 0
    data_index: int = 0  # the next sample nobody was given yet
    owed: Share = ()  # samples that were given out and not attested: trained again first
    tokens: int = 0  # tokens in attested results


class Checkpoint(msgspec.Struct, frozen=True):
    """The last stored model and how far it is; and where the newest one is to be had."""

    source: CheckpointSource = CheckpointSource.Ephemeral
    location: str = ""
    model_hash: bytes = b""
    progress: Progress = Progress()
    stored: int = 0  # when it was


class Saving(msgspec.Struct, frozen=True):
    """The model of a round, which some clients store while the epoch goes on."""

    election: Round  # the round before which it stands; its roster and seed elect who stores
    model_hash: bytes
    progress: Progress  # what the model has learnt
    since: int


class Judged(msgspec.Struct, frozen=True):
    """The last round whose results a quorum of witnesses was asked about."""

    height: int
    unhealthy: tuple[int, ...]  # places that had work and whose results a quorum did not see
    screened: tuple[int, ...] = ()  # places whose results a quorum saw, and would not have learnt


class Epoch(msgspec.Struct, frozen=True):
    """What lasts for one epoch."""

    clients: tuple[Client, ...] = ()
    started: int = 0
    absent: tuple[int, ...] = ()  # places whose client left
    ready: bytes = b""
    proven: bytes = b""
    proven_ready: int = 0  # when the last proven client became ready, since the epoch started
    vitals: tuple[bytes, ...] = ()
    leaving: tuple[tuple[int, Left], ...] = ()  # to be removed when RoundWitness ends
    warmup: Round | None = None  # the roster and seed that elect who may call others gone in Warmup
    called_gone: tuple[tuple[int, tuple[int, ...]], ...] = ()  # by roster index: which places
    called_false: tuple[tuple[int, tuple[int, ...]], ...] = ()  # likewise, who equivocated
    rounds: tuple[Round, ...] = ()  # the newest last
    last_height: int | None = None  # the last round that trains, once it is known
    judged: Judged | None = None
    agreed_height: int | None = None  # the round whose model hash is in `Coordinator.model_hash`
    saving: Saving | None = None
    saved: bool = False  # whether a model of this epoch is stored
    cooldown: Round | None = None  # the roster and seed that elect checkpointers
    checkpointed: bool = False


class Coordinator(msgspec.Struct, frozen=True):
    """A run, whole."""

    run: Run
    phase: Phase
    phase_start: int
    version: int = STATE_VERSION
    epoch_number: int = 0
    progress: Progress = Progress()
    epoch: Epoch = Epoch()
    pending: Registry[Pending] = Registry()
    checkpoint: Checkpoint = Checkpoint()
    model_hash: bytes = b""  # of the model that the last quorum agreed on
    pause_wanted: bool = False
    expelled: tuple[bytes, ...] = ()  # clients that may not come back
    marks: tuple[tuple[bytes, int], ...] = ()  # on clients whose results were screened, by id
    ejected: tuple[Ejection, ...] = ()
    audits: tuple[AuditRecord, ...] = ()  # in the order of ids
    last_epoch: int = 0  # how long it took, from Warmup to Cooldown

    def find(self, identity: bytes) -> int | None:
        """The place of a client that is in this epoch, or was."""
        clients = self.epoch.clients
        at = bisect_left(clients, identity, key=_id)
        return at if at < len(clients) and clients[at].id == identity else None

    def places(self, identities: Iterable[bytes]) -> tuple[int, ...]:
        """In their order, of those who are in this epoch, or were."""
        found = map(self.find, identities)
        return tuple(sorted(place for place in found if place is not None))

    @property
    def present(self) -> set[bytes]:
        """Who is in this epoch and has not left, or waits for the next one."""
        members = {client.id for client in self.epoch.clients if not client.left}
        return members | {pending.id for pending in self.pending}

    @property
    def active(self) -> int:
        """Clients of this epoch that have not left."""
        return len(self.epoch.clients) - len(self.epoch.absent)

    @property
    def election(self) -> Round | None:
        """The round, or what stands for one in Warmup and Cooldown: whose witnesses count now."""
        epoch = self.epoch
        rounds = {Phase.Warmup: epoch.warmup, Phase.Cooldown: epoch.cooldown}
        in_round = self.phase in (Phase.RoundTrain, Phase.RoundWitness)
        return self.round if in_round else rounds.get(self.phase)

    @property
    def turn(self) -> tuple[int, int]:
        """The epoch, and the height of its newest round; -1 before its first."""
        rounds = self.epoch.rounds
        return self.epoch_number, rounds[-1].height if rounds else -1

    @property
    def round(self) -> Round:
        return self.epoch.rounds[-1]

    def round_at(self, height: int) -> Round | None:
        """A stored round by height."""
        rounds = self.epoch.rounds
        at = height - rounds[0].height if rounds else -1
        return rounds[at] if 0 <= at < len(rounds) else None

    def roster_size(self, round_: Round) -> int:
        return len(self.epoch.clients) - len(round_.absent)

    def place(self, round_: Round, index: int) -> int:
        """The place in `clients` of the client that is `index`-th in a round's roster."""
        absent = round_.absent
        return index + bisect_right(range(len(absent)), index, key=lambda j: absent[j] - j)

    def index(self, round_: Round, place: int) -> int | None:
        """The roster index of a place in a round, or None when it was absent."""
        at = bisect_left(round_.absent, place)
        if at < len(round_.absent) and round_.absent[at] == place:
            return None
        return place - at

    def elected(self, round_: Round) -> int:
        """How many witnesses a round has."""
        return min(self.run.config.witness_nodes or MAX_WITNESSES, self.roster_size(round_))

    def quorum(self, round_: Round) -> int:
        return witness_quorum(self.elected(round_))

    def committee(self, round_: Round) -> CommitteeSelection:
        size = self.roster_size(round_)
        return CommitteeSelection(0, self.elected(round_), 0, size, round_.seed)

    def assignment(self, round_: Round) -> Assignment:
        """The work of a stored round, by roster index."""
        size = self.roster_size(round_)
        return Assignment(round_.spans, round_.seed, range(size), round_.weights)

    def bloom_shape(self, round_: Round, index: int) -> Shape:
        """The filters that the witness at roster `index` fills in a round.

        Sized for everyone of the epoch: the round it speaks of may have had more clients.
        """
        return bloom_shape(len(self.epoch.clients), round_.seed, index)

    def vitals(self) -> NDArray[np.void]:
        return np.frombuffer(b"".join(self.epoch.vitals), VITAL_TYPE)


def first_checkpoint(run: Run) -> Checkpoint:
    """Where the model of a run comes from before anything was trained."""
    source = CheckpointSource.Stored if run.model.start else CheckpointSource.Ephemeral
    return Checkpoint(source, run.model.start)


def trained(state: Coordinator) -> bool:
    """Whether there is a model that was not there when the run began."""
    return state.progress.step > 0 or state.checkpoint.source is CheckpointSource.P2P


def vitals_of(speeds: Sequence[int]) -> tuple[bytes, ...]:
    """The vitals of an epoch that begins with clients of these speeds."""
    column = b"".join(VITAL.pack(0, speed) for speed in speeds)
    size = VITALS_IN_PIECE * VITAL.size
    return tuple(column[at : at + size] for at in range(0, len(column), size))


def bit(column: bytes, place: int) -> bool:
    return bool(column[place >> 3] >> (place & 7) & 1)


def with_bits(column: bytes, places: Iterable[int]) -> bytes:
    changed = bytearray(column)
    for place in places:
        changed[place >> 3] |= 1 << (place & 7)
    return bytes(changed)


def count_bits(column: bytes) -> int:
    return int.from_bytes(column, "little").bit_count()
