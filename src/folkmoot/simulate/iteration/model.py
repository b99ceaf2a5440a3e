"""Ranks on one store, for the model checker: every order of their steps, and every fault between.

A step is one operation of one process on the store, with all that the process does by itself
before and after it: nobody else can tell when that happens. Besides, at any time and as often as
the bounds allow,

- a process of a rank begins, while the older one is dead, alive, or will only wake up later: a
  process that is paused is one that has no step for a while;
- a process dies, between any two of its operations; its launcher may write its death notice, later;
- an answer is lost: the operation happened, and is asked for again.

Who waits may be woken or give up; who looks may hold any of the others for silent, rightly or not,
and its time may be up or not. At some point faults stop (`calm`): nobody dies or begins, exactly
the dead are held for silent, and a process whose rank was taken over is told so. From there on
everybody alive must get to the last iteration, in every schedule that is fair.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache
from itertools import chain, combinations
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec.structs import replace

from folkmoot.core.iteration import keys, machine
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.config import Rules
from folkmoot.core.iteration.record import (
    DEAD,
    Record,
    encode_record,
    read_heartbeat,
    read_record,
)
from folkmoot.core.iteration.state import Asked, Phase, RankState
from folkmoot.core.machine import Effect
from folkmoot.simulate.iteration.checker import Transition
from folkmoot.simulate.iteration.opinion import doubt, doubt_move
from folkmoot.simulate.iteration.store import Store, Values, parts, perform

LATE = 10**9  # a time at which every time to wait is over
LOST = b"a proposal that cannot win"
STARVED = 3  # decisions in a row, with no fault, without a rank that is alive


class Bounds(NamedTuple):
    ranks: int = 3
    iterations: int = 2
    restarts: int = 1  # processes that begin besides the first of each rank
    crashes: int = 1
    losses: int = 0  # answers that do not come
    suspicion: bool = True  # whether the living may be held for silent
    torn: bool = False  # whether a look reads one key after the other
    split: bool = True  # whether others come between the two operations of a request, or a death
    begun: bool = False  # whether the first process of each rank has begun already
    calm: bool = True  # whether faults may stop


class ModelProcess(NamedTuple):
    """A process and its open request."""

    state: RankState
    request: Any
    seen: Values = ()  # what was answered to the first parts of its request


class ModelWorld(NamedTuple):
    """Numbers stand for values in the model's pools, so that a world is quick to compare."""

    processes: tuple[int, ...]
    store: int
    history: int  # the decisions so far; those that nobody can act on any more are forgotten
    chores: tuple[str, ...]  # keys that a winner is about to delete
    restarts: int
    crashes: int
    losses: int
    calm: bool = False
    left_out: tuple[int, ...] = ()  # when calm: how often in a row each rank was left out


class Belief(NamedTuple):
    """What a process that looks believes besides what it reads."""

    silent: tuple[int, ...] = ()
    late: bool = False


class Said(NamedTuple):
    """What happens in a step; in words when somebody asks."""

    request: Any
    values: Values = ()
    view: Belief = Belief()
    lost: bool = False

    def __str__(self) -> str:
        return _words(self) + (" and hears no answer" if self.lost else "")


class Move(NamedTuple):
    """What one operation of a process does."""

    process: int  # after it; -1 when it stopped
    store: int
    said: Said
    decided: bytes = b""
    advanced: Record | None = None
    chores: tuple[str, ...] = ()
    problem: str = ""


Value = TypeVar("Value", bound=Hashable)


class _Pool(Generic[Value]):
    """Values by number."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}
        self._values: list[Value] = []

    def number(self, value: Value) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self._values)
            self._values.append(value)
        return found

    def __getitem__(self, number: int) -> Value:
        return self._values[number]


Items = tuple[tuple[str, bytes], ...]


class Ranks:
    """A `TransitionSystem` for the checker."""

    def __init__(self, bounds: Bounds, **rules: Any) -> None:
        self.bounds = bounds
        self.rules = Rules(bounds.ranks, **rules)
        self._processes: _Pool[ModelProcess] = _Pool()
        self._stores: _Pool[Items] = _Pool()
        self._histories: _Pool[tuple[bytes, ...]] = _Pool()
        self._moves = cache(self._find_moves)
        self._dict = cache(lambda number: dict(self._stores[number]))
        self._name = cache(lambda number: _name(self._processes[number].state))
        self._oldest = cache(lambda number: _oldest(self._processes[number]))
        self._forget = cache(self._find_forgotten)
        self._must_go_on = cache(self._find_must_go_on)
        self._moves_heartbeat = cache(self._find_moves_heartbeat)
        self._hopeless = cache(self._find_hopeless)

    def first(self) -> ModelWorld:
        b = self.bounds
        ranks = tuple(sorted(self._begun(rank) for rank in range(b.ranks)))
        empty = self._stores.number(())
        world = ModelWorld(
            ranks, empty, self._histories.number(()), (), b.restarts, b.crashes, b.losses
        )
        return self._all_begun(world) if b.begun else world

    def _all_begun(self, world: ModelWorld) -> ModelWorld:
        for at in range(self.bounds.ranks):
            while self._processes[world.processes[at]].state.phase is Phase.Restarting:
                (move,) = self._moves(world.processes[at], world.store, None, False)
                assert move.process >= 0, "a process that begins alone does not stop"
                processes = (*world.processes[:at], move.process, *world.processes[at + 1 :])
                world = world._replace(processes=processes, store=move.store)
        return world._replace(processes=tuple(sorted(world.processes)))

    def must_go_on(self, world: ModelWorld) -> frozenset[Hashable]:
        if not world.calm:
            return frozenset()
        names = (self._must_go_on(number, world.store) for number in world.processes)
        return frozenset(name for name in names if name)

    def _find_must_go_on(self, number: int, store: int) -> str:
        state = self._processes[number].state
        if self._over(state) or _fenced(state, self._dict(store)):
            return ""
        return _name(state)

    def steps(self, world: ModelWorld) -> Iterator[Transition[ModelWorld]]:
        silent = self._silent(world) if world.calm else None
        for at, number in enumerate(world.processes):
            for move in self._moves(number, world.store, silent, world.losses > 0):
                yield self._made(world, at, move)
        for key in world.chores:
            yield self._deleted(world, key)
        if not world.calm:
            yield from self._faults(world)

    def _made(self, world: ModelWorld, at: int, move: Move) -> Transition[ModelWorld]:
        """The world after a move of its process number `at`."""
        who = self._name(world.processes[at])
        processes = world.processes[:at] + world.processes[at + 1 :]
        if move.process >= 0:
            processes = _with(processes, move.process)
        history, left_out, problem = world.history, world.left_out, move.problem
        if move.decided:
            history = self._histories.number((*self._histories[history], move.decided))
            processes = tuple(sorted(self._hopeless(n, move.decided) for n in processes))
            if world.calm:
                left_out = self._left_out(world, move.decided)
                if STARVED in left_out:
                    problem = f"rank {left_out.index(STARVED)} is alive and is starved"
        if move.advanced and not problem:
            problem = self._believed(history, move.advanced)
        processes, store, history = self._settled(processes, move.store, history)
        chores = tuple(sorted({*world.chores, *move.chores})) if move.chores else world.chores
        losses = world.losses - move.said.lost
        budget = world.restarts, world.crashes, losses
        after = ModelWorld(processes, store, history, chores, *budget, world.calm, left_out)
        return Transition(who, move.said, after, problem)

    def _settled(
        self, processes: tuple[int, ...], store: int, history: int
    ) -> tuple[tuple[int, ...], int, int]:
        """Without what no process can read, wait for or win with any more."""
        oldest = min((self._oldest(number) for number in processes), default=LATE)
        return (processes, *self._forget(oldest, store, history))

    def _find_forgotten(self, oldest: int, store: int, history: int) -> tuple[int, int]:
        decided = self._histories[history]
        kept = tuple(b"" if n < oldest else value for n, value in enumerate(decided))
        past = range(min(oldest, len(decided)))
        names = keys.ready, keys.ready_as_before, keys.arrived
        old = {key(n) for n in past for key in names}
        items = tuple(item for item in self._stores[store] if item[0] not in old)
        return self._stores.number(items), self._histories.number(kept)

    def _find_hopeless(self, number: int, register: bytes) -> int:
        """All proposals that a process can no longer win with are the same one."""
        state, request, seen = self._processes[number]
        if not isinstance(request, m.Decide) or seen:
            return number
        if register in (request.expected, request.desired):
            return number
        lost = replace(request, desired=LOST)
        return self._processes.number(ModelProcess(replace(state, proposal=LOST), lost, seen))

    # What goes wrong, and how that ends.

    def _faults(self, world: ModelWorld) -> Iterator[Transition[ModelWorld]]:
        # Ranks differ in nothing but their names: the first that a fault strikes is called 0, the
        # next that is another one 1.
        struck = self.bounds.restarts + self.bounds.crashes - world.restarts - world.crashes
        ranks = range(min(struck + 1, self.bounds.ranks))
        if world.restarts:
            for rank in ranks:
                begun = _with(world.processes, self._begun(rank))
                after = world._replace(processes=begun, restarts=world.restarts - 1)
                yield Transition("a launcher", f"starts rank {rank} again", after)
        if world.crashes:
            for at, number in enumerate(world.processes):
                if self._processes[number].state.rank in ranks:
                    yield from self._buried(world, at, self._processes[number].state)
        if not self.bounds.calm:
            return
        # A process that is dead, and nobody has said so, is one that has no step any more: it is
        # enough to say who was when the faults have stopped.
        for dead in range(min(world.crashes, len(world.processes)) + 1):
            for alive in combinations(world.processes, len(world.processes) - dead):
                yield Transition("faults", f"stop; {dead} have died", self._calm(world, alive))

    def _buried(
        self, world: ModelWorld, at: int, state: RankState
    ) -> Iterator[Transition[ModelWorld]]:
        """A process dies; its launcher sees it, and writes its death notice."""
        beat = read_heartbeat(state.heartbeat)
        if state.phase is Phase.Restarting or beat is None:
            return
        key, store = keys.heartbeat(state.rank), self._dict(world.store)
        after, _ = perform(store, m.CompareSet(key, bytes(beat), bytes(beat.ended(DEAD))))
        others = world.processes[:at] + world.processes[at + 1 :]
        others, number, history = self._settled(others, self._number(after), world.history)
        buried = world._replace(
            processes=others, store=number, history=history, crashes=world.crashes - 1
        )
        yield Transition(self._name(world.processes[at]), "dies, and has a death notice", buried)

    def _calm(self, world: ModelWorld, alive: tuple[int, ...]) -> ModelWorld:
        alive, store, history = self._settled(alive, world.store, world.history)
        left_out = (0,) * self.bounds.ranks
        return ModelWorld(alive, store, history, world.chores, 0, 0, 0, True, left_out)

    def _deleted(self, world: ModelWorld, key: str) -> Transition[ModelWorld]:
        store = {k: v for k, v in self._dict(world.store).items() if k != key}
        chores = tuple(k for k in world.chores if k != key)
        problem = "the newest decision is deleted" if key == keys.CONSENSUS else ""
        after = world._replace(store=self._number(store), chores=chores)
        return Transition("a winner", f"deletes {key}", after, problem)

    # What a process can do.

    def _find_moves(
        self, number: int, store_number: int, silent: tuple[int, ...] | None, losses: bool
    ) -> tuple[Move, ...]:
        """Its next operation, in every way it can turn out; `silent` are the dead when calm."""
        process, store = self._processes[number], self._dict(store_number)
        if silent is not None and _fenced(process.state, store):
            return (Move(-1, store_number, Said(None)),)
        if self._over(process.state):
            return ()
        moves: dict[Any, Move] = {}
        for asking in self._asking(process, store, silent is not None):
            for move in self._ask(asking, store, silent):
                moves.setdefault(move._replace(said=Said(None)), move)
        if losses and silent is None and process.request:
            # The last part of it happens, and is heard of by nobody: it is asked for again, whole.
            after, _ = perform(store, self._part(process))
            again = self._processes.number(process._replace(seen=()))
            moves[None] = self._judged(store, after, again, Said(process.request, lost=True), ())
        return tuple(moves.values())

    def _asking(self, process: ModelProcess, store: Store, calm: bool) -> Iterator[ModelProcess]:
        """The process with what it may ask next: who waits may also have given up, and look."""
        state = process.state
        if state.phase is Phase.Training:
            yield ModelProcess(*self._told(state, m.Finished(state.iteration)))
        elif isinstance(process.request, m.Wait):
            if process.request.key in store:
                yield process
                if calm:
                    return
            yield ModelProcess(*self._told(state, m.Answered((None,))))
        else:
            yield process

    def _ask(
        self, process: ModelProcess, store: Store, silent: tuple[int, ...] | None
    ) -> Iterator[Move]:
        after, answer = perform(store, self._part(process))
        values = (*process.seen, *answer)
        if len(values) < self._parts(process.request, values):
            waiting = self._processes.number(process._replace(seen=values))
            yield self._judged(store, after, waiting, Said(process.request, values), ())
            return
        for view in self._views(process.state, silent):
            yield self._answered(process, store, after, values, view)

    def _parts(self, request: Any, seen: Values) -> int:
        """How many operations it is: others come between, and it can die there."""
        if self.bounds.torn and isinstance(request, m.GetMany):
            return len(request.keys)
        return len(parts(request, seen)) if self.bounds.split else 1

    def _part(self, process: ModelProcess) -> Any:
        """The next of them."""
        request, at = process.request, len(process.seen)
        if self.bounds.torn and isinstance(request, m.GetMany):
            return m.GetMany(request.keys[at : at + 1])
        return parts(request, process.seen)[at] if self.bounds.split else request

    def _views(self, state: RankState, silent: tuple[int, ...] | None) -> Iterator[Belief]:
        if state.asked is Asked.Arrival:
            # Whether anybody is silent, not who.
            other = (state.rank + 1) % self.bounds.ranks
            doubts = (other,) if self.bounds.suspicion and self.bounds.ranks > 1 else ()
            yield from map(Belief, {(), doubts} if silent is None else {silent})
        elif state.asked is not Asked.Everything:
            yield Belief()
        elif silent is not None:
            yield Belief(silent, late=state.record is None)
        else:
            others = [rank for rank in range(self.bounds.ranks) if rank != state.rank]
            sizes = range(len(others) + 1 if self.bounds.suspicion else 1)
            timed = state.record is None or state.rules.straggler_timeout
            for held in chain.from_iterable(combinations(others, size) for size in sizes):
                yield from (Belief(held, late) for late in ((False, True) if timed else (False,)))

    def _answered(
        self, process: ModelProcess, before: Store, store: Store, values: Values, view: Belief
    ) -> Move:
        state, now = process.state, LATE if view.late else 0
        said = Said(process.request, values, view)
        held = machine.apply(state, m.Silent(view.silent), now, 0).state
        after, effects = machine.apply(held, m.Answered(values), now, 0)
        problem = "" if self.bounds.torn else doubt(held, after, values, late=view.late)
        if after.asked is Asked.Incarnation:
            # The answer to the question before is the same at any time.
            store, values = perform(store, _request(effects))
            after, effects = machine.apply(after, m.Answered(values), now, 0)
        # What these two say changes nothing but what the rank tells its user.
        after = replace(after, silent=(), missing=())
        number = -1
        if after.phase is not Phase.Stopped:
            number = self._processes.number(ModelProcess(after, _request(effects)))
        move = self._judged(before, store, number, said, effects)
        return move._replace(problem=move.problem or problem or _misled(state, effects))

    def _told(self, state: RankState, event: m.AnyEvent) -> tuple[RankState, Any]:
        after, effects = machine.apply(state, event, 0, 0)
        return after, _request(effects)

    # What must hold.

    def _judged(
        self, before: Store, store: Store, process: int, said: Said, effects: tuple[Effect, ...]
    ) -> Move:
        """The move from one store to the next: what it decides, and whether it may."""
        advanced = next((e.record for e in effects if isinstance(e, m.Advanced)), None)
        chores = [k for e in effects if isinstance(e, m.Housekeeping) for k in e.delete]
        gone = tuple(key for key in chores if key in store)
        move = Move(process, self._number(store), said, b"", advanced, gone)
        new = store.get(keys.CONSENSUS, b"")
        if new == before.get(keys.CONSENSUS, b""):
            return move
        problem = doubt_move(before, store, self.rules)
        return move._replace(decided=b"" if problem else new, problem=problem)

    def _believed(self, history: int, record: Record) -> str:
        decided = self._histories[history]
        if record.iteration < len(decided) and encode_record(record) == decided[record.iteration]:
            return ""
        return f"a process takes part in {record}, which was not decided"

    def _left_out(self, world: ModelWorld, decided: bytes) -> tuple[int, ...]:
        record, silent = read_record(decided, self.bounds.ranks), self._silent(world)
        assert record is not None
        return tuple(
            0 if rank in record.ranks or rank in silent else count + 1
            for rank, count in enumerate(world.left_out)
        )

    # Small things.

    def _begun(self, rank: int) -> int:
        return self._processes.number(
            ModelProcess(*self._told(machine.create(self.rules, rank), m.Started()))
        )

    def _over(self, state: RankState) -> bool:
        """Whether it is past the last iteration that is looked at."""
        last = self.bounds.iterations - 1
        return state.target > last or (state.phase is Phase.Training and state.iteration >= last)

    def _silent(self, world: ModelWorld) -> tuple[int, ...]:
        """Ranks whose heartbeat nobody moves."""
        moved = {self._moves_heartbeat(number, world.store) for number in world.processes}
        return tuple(rank for rank in range(self.bounds.ranks) if rank not in moved)

    def _find_moves_heartbeat(self, number: int, store: int) -> int:
        """The rank whose heartbeat this process moves, or -1."""
        state = self._processes[number].state
        beat = read_heartbeat(self._dict(store).get(keys.heartbeat(state.rank)))
        born = state.phase is not Phase.Restarting and beat is not None and not beat.over
        return state.rank if born and beat and beat.incarnation == state.incarnation else -1

    def _number(self, store: Store) -> int:
        return self._stores.number(tuple(sorted(store.items())))


def _misled(state: RankState, effects: tuple[Effect, ...]) -> str:
    """A process takes part in what it is in, once, and stops only when it is fenced."""
    name = _name(state)
    for effect in effects:
        if isinstance(effect, m.Advanced):
            record = effect.record
            if record.iteration < state.target:
                return f"{name} takes part in iteration {record.iteration} again"
            if not record.has(state.rank, state.incarnation):
                return f"{name} takes part in iteration {record.iteration} and is not in it"
        if isinstance(effect, m.Stopped) and effect.code != m.Reason.Fenced:
            return f"{name} stops: {effect.code}"
    return ""


def _fenced(state: RankState, store: Store) -> bool:
    """Whether its heartbeats find that a newer process of its rank has begun."""
    beat = read_heartbeat(store.get(keys.heartbeat(state.rank)))
    born = state.phase is not Phase.Restarting
    return born and beat is not None and beat.incarnation > state.incarnation


def _oldest(process: ModelProcess) -> int:
    """The oldest decision that it may still act on."""
    state = process.state
    if state.phase is not Phase.Restarting:
        return state.target
    return state.iteration + 1 if state.asked is Asked.Birth else LATE


def _name(state: RankState) -> str:
    return f"rank {state.rank}, process {state.incarnation or '?'}"


def _request(effects: tuple[Effect, ...]) -> Any:
    return next((e for e in effects if isinstance(e, m.Request)), None)


def _with(numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return tuple(sorted((*numbers, number)))


def _words(said: Said) -> str:
    request, values, view = said.request, said.values, said.view
    match request:
        case m.GetMany(names):
            held = f", holds {list(view.silent)} for silent" if view.silent else ""
            return f"reads {len(names)} keys{held}{', its time is up' if view.late else ''}"
        case m.Wait(key):
            return f"is woken by {key}"
        case m.Set(key):
            return f"sets {key}"
        case m.Add(key):
            return f"adds to {key}"
        case m.Decide(wakeups=wakeups) if len(values) > 1:
            return f"sets {wakeups[len(values) - 2]}"
        case m.Arrive(arrived=arrived) if len(values) == 2:
            return f"puts a note on {arrived}"
        case m.CompareSet(key, _, desired) | m.Arrive(key, _, desired) | m.Decide(key, _, desired):
            won = "" if not values else " (done)" if values[0] == desired else " (refused)"
            return f"compares and sets {key} to {desired.decode()}{won}"
    return "learns that it is fenced"
