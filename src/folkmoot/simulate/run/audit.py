"""The audit of a run: its own books of what was given out, learnt, attested and stored.

It is told what was published, what an honest model learnt, and what was stored.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from folkmoot.core.coordinator import machine
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import Run
from folkmoot.core.coordinator.state import CheckpointSource, Coordinator, Phase, Progress, Round
from folkmoot.core.machine import Machine
from folkmoot.simulate.audit import Audit, Crashed, Fact, Step
from folkmoot.simulate.run import reference
from folkmoot.simulate.run.committees import Published, learnt, shares
from folkmoot.simulate.run.invariants import (
    CHART,
    INVARIANTS,
    NEED_THE_WORLD,
    honest_models_are_equal,
    nobody_waits_longer_than_usual_rounds_take,
    only_who_does_not_answer_is_called_gone,
)


class ResultPublished(Fact, frozen=True, tag=True):
    epoch: int
    height: int
    trainer: bytes
    commitment: bytes
    nonsense: bool = False  # whether it is not what somebody trained


class ModelLearnt(Fact, frozen=True, tag=True):
    """An honest client's model now stands at the beginning of round `height`."""

    client: bytes
    epoch: int
    height: int
    model_hash: bytes
    samples: str  # a mask, in hex: JSON has no numbers that large


class GaveUp(Fact, frozen=True, tag=True):
    """A client, even one that lies, went on without a result that witnesses saw."""

    client: bytes
    epoch: int


class ModelStored(Fact, frozen=True, tag=True):
    location: str
    model_hash: bytes
    samples: str


class AuditedFalsely(Fact, frozen=True, tag=True):
    """A client says of others' results what it did not find."""

    client: bytes


class CalledGone(Fact, frozen=True, tag=True):
    """An honest client calls another gone that left a question unanswered for so long."""

    client: bytes
    peer: bytes
    waited: int


class WaitedFor(Fact, frozen=True, tag=True):
    """An honest witness went on without results that might still come, or cannot be had: how long
    it waited, and how long it may, in milliseconds."""

    client: bytes
    waited: int
    limit: int


AnyFact = (
    AuditedFalsely
    | CalledGone
    | WaitedFor
    | ResultPublished
    | ModelLearnt
    | GaveUp
    | ModelStored
    | Crashed
)


class ToyModel(NamedTuple):
    hash: bytes
    samples: int  # a mask of what it learnt


class ReferenceVerdict(NamedTuple):
    """What the plain reference says about the work that a closing round attests."""

    height: int
    attested: int  # masks
    owed: int
    unhealthy: frozenset[int]  # places
    screened: frozenset[int]


class Books:
    """What was learnt and what is on its way, kept without asking the machine."""

    def __init__(self, start: str) -> None:
        self.learnt = 0
        # Attested, yet no quorum holds one commitment (see `reference`), or nobody has the bytes.
        self.lost = 0
        self.in_flight: dict[int, int] = {}
        self.kept = {start: (0, 0)}

    @property
    def applied(self) -> int:
        return self.learnt & ~self.lost


class RunAudit(Audit[Run, Coordinator]):
    name = "run"
    machine: ClassVar[Machine[Any]] = machine
    config_type = Run
    facts = AnyFact
    invariants = INVARIANTS
    chart = CHART
    final = Phase.Finished
    need_the_world = NEED_THE_WORLD

    def __init__(self, config: Run, only: str = "") -> None:
        super().__init__(config, only)
        self.books = Books(config.model.start)
        self.published: Published = {}
        self.nonsense: set[bytes] = set()  # clients that sent some
        self.false_auditors: set[bytes] = set()
        self.worked: set[bytes] = set()  # clients that a quorum attested, or that were witnesses
        self.models = {reference.GENESIS: ToyModel(reference.GENESIS, 0)}
        self.canonical: dict[tuple[int, int], ToyModel] = {}
        self.stored: dict[str, ToyModel] = {}
        self.gave_up: set[tuple[int, bytes]] = set()  # epochs and clients
        self.doubtful: set[int] = set()  # epochs in which honest clients may read filters apart
        self.verdict: ReferenceVerdict | None = None  # of this step, when it judged
        self.unhealthy: frozenset[int] = frozenset()  # by the last verdict
        self.blamed: frozenset[int] = frozenset()  # the same, before this step
        self.samples_attested = self.samples_lost = 0

    def create(self, config: Run) -> Coordinator:
        return machine.create(config, 0)

    @staticmethod
    def counted_in(progress: Progress) -> int:
        """A mask of the samples that a progress counts as learnt."""
        return ((1 << progress.data_index) - 1) & ~reference.mask(progress.owed)

    def observe(self, step: Step[Coordinator]) -> None:
        self.blamed = self.unhealthy
        if step.effects:
            self._book(step)

    def learn(self, fact: Any) -> None:
        if isinstance(fact, ResultPublished):
            round_ = self.published.setdefault((fact.epoch, fact.height), {})
            claims = round_.setdefault(fact.trainer, [])
            if fact.commitment not in claims:
                claims.append(fact.commitment)
            if fact.nonsense:
                self.nonsense.add(fact.trainer)
        elif isinstance(fact, AuditedFalsely):
            self.false_auditors.add(fact.client)
        elif isinstance(fact, CalledGone):
            problems = only_who_does_not_answer_is_called_gone(fact)
            self.check("only_who_does_not_answer_is_called_gone", problems)
        elif isinstance(fact, WaitedFor):
            problems = nobody_waits_longer_than_usual_rounds_take(fact)
            self.check("nobody_waits_longer_than_usual_rounds_take", problems)
        elif isinstance(fact, ModelStored):
            self.stored[fact.location] = ToyModel(fact.model_hash, int(fact.samples, 16))
        elif isinstance(fact, GaveUp):
            self.gave_up.add((fact.epoch, fact.client))
        elif fact.epoch in self.doubtful or (fact.epoch, fact.client) in self.gave_up:
            model = ToyModel(fact.model_hash, int(fact.samples, 16))
            self.models.setdefault(model.hash, model)
        elif isinstance(fact, ModelLearnt):
            self.check("honest_models_are_equal", honest_models_are_equal(self, fact))

    def _book(self, step: Step[Coordinator]) -> None:
        books, after = self.books, step.after
        self.verdict = None
        if step.moved and step.before.phase is Phase.RoundWitness:
            # The witness that closes a round is in the state after it, not before.
            height = step.before.round.height
            if after.epoch.agreed_height == height or after.phase is Phase.Finished:
                self._adopt(step.before.epoch_number, height, after.model_hash)
            self._close(step.before, after.round_at(height) or step.before.round)
        for effect in step.effects:
            if isinstance(effect, m.RoundStarted):
                if after.round.spans:
                    books.in_flight[effect.height] = reference.mask(after.round.spans)
            elif isinstance(effect, m.WitnessAccepted):
                self.worked.add(effect.id)
            elif isinstance(effect, m.CheckpointStored):
                counted = self.counted_in(after.checkpoint.progress)
                held = self.stored.get(effect.location, ToyModel(b"", 0)).samples
                books.kept[effect.location] = (counted, counted & ~held)
            elif isinstance(effect, m.Rewound):
                books.learnt, books.lost = books.kept[after.checkpoint.location]
                books.in_flight.clear()
            elif isinstance(effect, m.EpochStarted):
                self.canonical[effect.epoch, 0] = self._first_model(after)
                self.unhealthy = frozenset()
        if after.phase not in (Phase.RoundTrain, Phase.RoundWitness):
            books.in_flight.clear()  # whatever was in it is missed by the invariants now

    def _first_model(self, state: Coordinator) -> ToyModel:
        checkpoint = state.checkpoint
        if checkpoint.source is CheckpointSource.P2P:
            return self.models.get(state.model_hash, ToyModel(b"a model nobody holds", 0))
        if checkpoint.source is CheckpointSource.Stored and checkpoint.location in self.stored:
            return self.stored[checkpoint.location]
        return self.models[reference.GENESIS]

    def _adopt(self, epoch: int, height: int, agreed: bytes) -> None:
        """Take over what a quorum made of a result that is lost, or of one in two versions."""
        honest, found = self.canonical[epoch, height], self.models.get(agreed)
        unsure = epoch in self.doubtful or any(epoch == one for one, _ in self.gave_up)
        if unsure and found is not None and found != honest:
            self.canonical[epoch, height] = found
            self.books.lost |= honest.samples & ~found.samples

    def _close(self, state: Coordinator, by: Round) -> None:
        """Judge the closing round by the plain reference and say what honest models become."""
        epoch = state.epoch_number
        model = self.canonical[epoch, by.height]
        work = state.round_at(by.height - state.run.config.delay)
        if work is not None and work.spans:
            self.verdict = self._judge(state, by, work)
            results = learnt(state, by, work, self.published)
            samples = 0
            for one in results:
                samples |= one.samples
            if any(one.doubtful for one in results):
                self.doubtful.add(epoch)
            lost = self.verdict.attested & ~samples
            self.samples_attested += self.verdict.attested.bit_count()
            self.samples_lost += lost.bit_count()
            self.books.lost |= lost
            name = reference.learn(model.hash, [one.commitment for one in results])
            model = ToyModel(name, model.samples | samples)
        self.canonical[epoch, by.height + 1] = model
        self.models[model.hash] = model

    def _judge(self, state: Coordinator, by: Round, work: Round) -> ReferenceVerdict:
        rows = shares(state, work)
        quorum = reference.quorum(reference.elected(state, by))
        heard = len(by.witnesses)
        votes = reference.votes(state, by, [place for place, _ in rows])
        attested = reference.mask(
            span
            for place, share in rows
            for span in share
            if votes[place] >= quorum and place not in by.void
        )
        screeners = {place: reference.screeners(by, place) for place, _ in rows}
        saw = {
            p: {w.proof.index for w in by.witnesses if reference.vote(state, by, w, p)}
            | screeners[p]
            for p, _ in rows
        }
        unhealthy = frozenset(p for p, _ in rows if heard - len(saw[p]) >= quorum)
        screened = frozenset(
            p
            for p, _ in rows
            if len(screeners[p]) >= quorum and (votes[p] < quorum or p in by.void)
        )
        if heard < quorum:
            screened = frozenset()
        self.worked |= {state.epoch.clients[p].id for p, _ in rows if votes[p] >= quorum}
        self.unhealthy = unhealthy
        self.books.in_flight.pop(work.height, None)
        self.books.learnt |= attested
        owed = reference.mask(work.spans) & ~attested
        return ReferenceVerdict(work.height, attested, owed, unhealthy, screened)
