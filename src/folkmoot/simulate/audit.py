"""The audit of a machine: everything that reaches the machine goes through here and is checked.

`submit` feeds it and keeps its journal; whatever else the invariants need to know is told as a
`Fact`. The log of both is all it takes to come to the same verdict again (see `transcript`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import msgspec

from folkmoot.core.machine import Effect, Machine, State


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant
        self.detail = detail


class Fact(msgspec.Struct, frozen=True, tag_field="fact", tag=True):
    """Something true of the world that the machine is not told."""


class Crashed(Fact, frozen=True, tag=True):
    """Who held the machine died: the journal is all that is left of it."""


class Input(NamedTuple):
    """One call of the machine."""

    now: int
    seed: int
    event: Any
    effects: tuple[Effect, ...]


class Step(NamedTuple, Generic[State]):
    """What one input did."""

    before: State
    after: State
    event: Any
    effects: tuple[Effect, ...]
    now: int

    @property
    def moved(self) -> bool:
        return self.before.phase is not self.after.phase

    def has(self, kind: type) -> bool:
        return any(isinstance(effect, kind) for effect in self.effects)


Config = TypeVar("Config", bound=msgspec.Struct)
Log = list[Input | Fact]
# Where each phase may lead: the table written down once more, so that a changed one is noticed.
Chart = Mapping[str, set[str]]
# Sentences that say what is wrong; the first one counts.
Problems = Iterator[str]
# Given the audit and the step that was just made.
Invariant = Callable[[Any, Step[Any]], Problems]


class Audit(Generic[Config, State]):
    """A subclass names the machine and its invariants, and may keep books of its own."""

    name: ClassVar[str]  # of the machine: its transcripts begin with it
    machine: ClassVar[Machine[Any]]
    config_type: ClassVar[Any]  # what a machine is created from
    facts: ClassVar[Any] = Crashed  # the union of all that may be told
    invariants: ClassVar[tuple[Invariant, ...]]
    chart: ClassVar[Chart]
    final: ClassVar[str]  # the phase that ends it
    # Invariants that compare the machine with the world: a transcript with events left out would
    # fail them whether or not the machine is right.
    need_the_world: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, config: Config, only: str = "") -> None:
        """`only` names the one invariant to check; by default all are."""
        self.config, self.only = config, only
        self.log: Log = []
        self.state: State = self.create(config)
        self._checked = [i for i in self.invariants if only in ("", i.__name__)]
        self._snapshot = self.machine.encode(self.state)
        self._journal: list[tuple[Any, int, int]] = []

    @property
    def inputs(self) -> list[Input]:
        return [entry for entry in self.log if isinstance(entry, Input)]

    @property
    def effects(self) -> list[Effect]:
        """All that the machine ever said."""
        return [effect for entry in self.inputs for effect in entry.effects]

    def create(self, config: Config) -> State:
        """The machine's first state."""
        raise NotImplementedError

    def observe(self, step: Step[State]) -> None:
        """Keep books, before the invariants are checked."""

    def learn(self, fact: Any) -> None:
        """Keep a fact in the books."""

    def submit(self, now: int, seed: int, event: Any) -> tuple[Effect, ...]:
        """Feed the machine and check everything."""
        before = self.state
        try:
            after, effects = self.machine.apply(before, event, now, seed)
        except Exception as error:
            self.log.append(Input(now, seed, event, ()))
            raise Violation("the_machine_never_raises", repr(error)) from error
        self.log.append(Input(now, seed, event, effects))
        if after is not before:
            self._journal.append((event, now, seed))
            self.state = after
        step = Step(before, after, event, effects, now)
        self.observe(step)
        for invariant in self._checked:
            for problem in invariant(self, step):
                raise Violation(invariant.__name__, problem)
        return effects

    def tell(self, fact: Fact) -> None:
        self.log.append(fact)
        if isinstance(fact, Crashed):
            self._recover()
        else:
            self.learn(fact)

    def check(self, invariant: str, problems: Iterable[str]) -> None:
        """An invariant that is about something else than a step."""
        if self.only in ("", invariant):
            for problem in problems:
                raise Violation(invariant, problem)

    def _recover(self) -> None:
        """Come back with what the journal gives."""
        lost, again = self.machine.encode(self.state), self.machine.decode(self._snapshot)
        for event, now, seed in self._journal:
            again, _ = self.machine.apply(again, event, now, seed)
        found = self.machine.encode(again)
        if found != lost:
            different = f"{len(self._journal)} events give another state"
            self.check("a_journal_gives_back_what_was_lost", [different])
        self.state, self._snapshot, self._journal = again, found, []
