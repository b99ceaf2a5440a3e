"""The audit of a run: it feeds the machine, keeps its own books, and holds the two together.

Everything that reaches the machine goes through `Audit.submit`, and everything else the invariants
need to know is told as a fact: what was published, what an honest model learnt, what was stored.
The log of both is all it takes to come to the same verdict again (see `transcript`).
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from folkmoot.core.coordinator import machine
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import Run
from folkmoot.core.coordinator.state import Coordinator, Phase, Round, Source
from folkmoot.simulate.run import reference
from folkmoot.simulate.run.committees import Committees, Published
from folkmoot.simulate.run.invariants import INVARIANTS, honest_models_are_equal


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail
        self.log: list[Input | AnyFact] = []  # what led to it, when it comes from a replay


class Fact(msgspec.Struct, frozen=True, tag_field="fact", tag=True):
    """Something true of the world that the machine is not told."""


class ResultPublished(Fact, frozen=True, tag=True):
    epoch: int
    height: int
    trainer: bytes
    commitment: bytes


class ModelLearnt(Fact, frozen=True, tag=True):
    """An honest client's model now stands at the beginning of round `height`."""

    client: bytes
    epoch: int
    height: int
    model_hash: bytes
    samples: str  # a mask, in hex: JSON has no numbers that large


class ModelStored(Fact, frozen=True, tag=True):
    location: str
    model_hash: bytes
    samples: str


AnyFact = ResultPublished | ModelLearnt | ModelStored


class Input(NamedTuple):
    """One call of the machine."""

    now: int
    seed: int
    message: m.AnyEvent
    effects: tuple[m.Effect, ...]


class Step(NamedTuple):
    """What one input did."""

    before: Coordinator
    after: Coordinator
    message: m.AnyEvent
    effects: tuple[m.Effect, ...]
    now: int

    @property
    def moved(self) -> bool:
        return self.before.phase is not self.after.phase


class Model(NamedTuple):
    hash: bytes
    samples: int  # a mask of what it learnt


class Verdict(NamedTuple):
    """What the plain reference says about the work that a closing round attests."""

    height: int
    attested: int  # masks
    owed: int
    unhealthy: frozenset[int]  # places


class Books:
    """What was learnt and what is on its way, kept without asking the machine."""

    def __init__(self, start: str) -> None:
        self.learnt = 0
        self.lost = 0  # attested, yet no quorum holds one commitment: see `reference`
        self.in_flight: dict[int, int] = {}
        self.kept = {start: (0, 0)}

    @property
    def applied(self) -> int:
        return self.learnt & ~self.lost


class Audit:
    def __init__(self, run: Run, only: str = "") -> None:
        """`only` names the one invariant to check; by default all are."""
        self.run = run
        self.only = only
        self.invariants = [i for i in INVARIANTS if only in ("", i.__name__)]
        self.state = machine.create(run, 0)
        self.log: list[Input | AnyFact] = []
        self.books = Books(run.model.start)
        self.published: Published = {}
        self.committees = Committees(self.published)
        self.models = {reference.GENESIS: Model(reference.GENESIS, 0)}
        self.canonical: dict[tuple[int, int], Model] = {}
        self.stored: dict[str, Model] = {}
        self.verdict: Verdict | None = None  # of this step, when it judged
        self.unhealthy: frozenset[int] = frozenset()  # by the last verdict
        self.blamed: frozenset[int] = frozenset()  # the same, before this step
        self.samples_attested = self.samples_lost = 0

    def submit(self, now: int, seed: int, message: m.AnyEvent) -> tuple[m.Effect, ...]:
        """Feed the machine and check everything."""
        before, self.blamed = self.state, self.unhealthy
        try:
            after, effects = machine.apply(before, message, now, seed)
        except Exception as error:
            self.log.append(Input(now, seed, message, ()))
            raise Violation("the_machine_never_raises", repr(error)) from error
        self.log.append(Input(now, seed, message, effects))
        self.state = after
        step = Step(before, after, message, effects, now)
        if effects:
            self._book(step)
        for invariant in self.invariants:
            problem = invariant(self, step)
            if problem:
                raise Violation(invariant.__name__, problem)
        return effects

    def tell(self, fact: AnyFact) -> None:
        self.log.append(fact)
        if isinstance(fact, ResultPublished):
            round_ = self.published.setdefault((fact.epoch, fact.height), {})
            claims = round_.setdefault(fact.trainer, [])
            if fact.commitment not in claims:
                claims.append(fact.commitment)
        elif isinstance(fact, ModelStored):
            self.stored[fact.location] = Model(fact.model_hash, int(fact.samples, 16))
        elif self.only in ("", "honest_models_are_equal"):
            problem = honest_models_are_equal(self, fact)
            if problem:
                raise Violation("honest_models_are_equal", problem)

    def _book(self, step: Step) -> None:
        books, after = self.books, step.after
        self.verdict = None
        if step.moved and step.before.phase is Phase.RoundWitness:
            # The witness that closes a round is in the state after it, not before.
            height = step.before.round.height
            self._close(step.before, after.round_at(height) or step.before.round)
        for effect in step.effects:
            if isinstance(effect, m.RoundStarted):
                if after.round.spans:
                    books.in_flight[effect.height] = reference.mask(after.round.spans)
            elif isinstance(effect, m.CheckpointStored):
                books.kept[effect.location] = (books.learnt, books.lost)
            elif isinstance(effect, m.Rewound):
                books.learnt, books.lost = books.kept[after.checkpoint.location]
                books.in_flight.clear()
            elif isinstance(effect, m.EpochStarted):
                self.canonical[effect.epoch, 0] = self._first_model(after)
                self.unhealthy = frozenset()
        if after.phase not in (Phase.RoundTrain, Phase.RoundWitness):
            books.in_flight.clear()  # whatever was in it is missed by the invariants now

    def _first_model(self, state: Coordinator) -> Model:
        checkpoint = state.checkpoint
        if checkpoint.source is Source.P2P:
            return self.models.get(state.model_hash, Model(b"a model nobody holds", 0))
        if checkpoint.source is Source.Stored and checkpoint.location in self.stored:
            return self.stored[checkpoint.location]
        return self.models[reference.GENESIS]

    def _close(self, state: Coordinator, by: Round) -> None:
        """Judge the closing round by the plain reference and say what honest models become."""
        epoch = state.epoch_number
        model = self.canonical[epoch, by.height]
        work = state.round_at(by.height - state.run.config.delay)
        if work is not None and work.spans:
            self.verdict = self._judge(state, by, work)
            learnt = self.committees.learnt(state, by, work)
            samples = 0
            for one in learnt:
                samples |= one.samples
            lost = self.verdict.attested & ~samples
            self.samples_attested += self.verdict.attested.bit_count()
            self.samples_lost += lost.bit_count()
            self.books.lost |= lost
            name = reference.learn(model.hash, [one.commitment for one in learnt])
            model = Model(name, model.samples | samples)
        self.canonical[epoch, by.height + 1] = model
        self.models[model.hash] = model

    def _judge(self, state: Coordinator, by: Round, work: Round) -> Verdict:
        shares = self.committees.shares(state, work)
        quorum = reference.quorum(reference.elected(state, by))
        heard = len(by.witnesses)
        votes = reference.votes(state, by, [place for place, _ in shares])
        attested = reference.mask(
            span for place, share in shares for span in share if votes[place] >= quorum
        )
        unhealthy = frozenset(p for p, seen in votes.items() if heard - seen >= quorum)
        self.unhealthy = unhealthy
        self.books.in_flight.pop(work.height, None)
        self.books.learnt |= attested
        return Verdict(work.height, attested, reference.mask(work.spans) & ~attested, unhealthy)
