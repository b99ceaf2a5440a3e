"""The words of transcripts about ranks on one store. A process goes on by itself until it trains,
waits for a key that is not there, or stops; what it asks the store and what follows is shown. Who
waits for a key that is written goes on in the same breath.

> job world=3                   an empty store; ranks of this many
> running world=3               a job whose ranks have started, and train iteration 0
> 0 start 1                     a process of rank 1 begins; `1.2` is another process of the rank
> 0 finish 1 progress=5         it is done with its iteration
> 1 give_up 1                   it has waited for long enough, and looks
> 1 silent 0 1,2                rank 0 holds ranks 1 and 2 for silent
> 1 beat 1                      it moves its heartbeat         > 1 leave 1     > 1 tick 1
> hold 1 Proposal               it is paused just before it asks for that    > 2 go 1
> torn 1                        of what it is about to ask, only the first operation happens
> crash 1                       it is gone                     > death_notice 1  its launcher does
> write KEY VALUE               a stranger does                > empty         the store is
> store                         what the store holds           > show 1        what a process knows
"""

from typing import Any, ClassVar

import msgspec

from folkmoot.core import iteration
from folkmoot.core.iteration import RankState, Rules, keys, machine
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.record import DEAD, Heartbeat, read_heartbeat
from folkmoot.core.iteration.state import Asked, Phase
from folkmoot.core.machine import Effect, Event
from folkmoot.simulate.iteration.store import Store, parts, perform
from scenarios.transcript import SEED, Words


class _To(Event, frozen=True, tag=True):
    """An event for one process; with none, it goes on from where it was held."""

    name: str
    event: Any = None


class _Line(Effect, frozen=True, tag=True):
    text: str


class _Process:
    def __init__(self, state: RankState) -> None:
        self.state = state
        self.request: Any = None
        self.asked_at = 0
        self.held = ""
        self.heartbeat = b""


class IterationWords(Words):
    machine = iteration
    codes = (m.Reason.WrongPhase,)
    silence: ClassVar = ["nothing"]

    def create_job(self, **named: str) -> None:
        self.rules = msgspec.convert(named, Rules, strict=False)
        self.store: Store = {}
        self.processes: dict[str, _Process] = {}

    def create_running(self, **named: str) -> None:
        self.create_job(**named)
        for rank in range(self.rules.world):
            self.apply(self.say_start(str(rank)), 0, SEED)

    # What happens to a process.

    def say_start(self, name: str, held: str = "", **named: str) -> _To:
        rules = msgspec.convert({**msgspec.to_builtins(self.rules), **named}, Rules, strict=False)
        self.processes[name] = _Process(machine.create(rules, int(name.split(".")[0])))
        self.processes[name].held = held
        return _To(name, m.Started())

    def say_finish(self, name: str, progress: str = "0") -> _To:
        return _To(name, m.Finished(int(progress)))

    def say_give_up(self, name: str) -> _To:
        assert isinstance(self.processes[name].request, m.Wait)
        return _To(name, m.Answered((None,)))

    def say_answer(self, name: str, value: str) -> _To:
        return _To(name, m.Answered((value.encode(),)))

    def say_silent(self, name: str, ranks: str = "") -> _To:
        return _To(name, m.Silent(tuple(int(rank) for rank in ranks.split(",") if rank)))

    def say_beat(self, name: str) -> _To:
        process = self.processes[name]
        beat = read_heartbeat(process.heartbeat)
        assert beat is not None
        request = machine.send_heartbeat(process.state.rank, beat)
        self.store, (found,) = perform(self.store, request)
        if found != request.desired:
            return _To(name, m.Beaten(found))
        process.heartbeat = request.desired
        return _To(name, m.Silent(process.state.silent))

    def say_leave(self, name: str) -> _To:
        return _To(name, m.Leave())

    def say_tick(self, name: str) -> Any:
        return _To(name, m.Tick())

    def say_go(self, name: str) -> _To:
        self.processes[name].held = ""
        return _To(name)

    def apply(self, event: Event, now: int, seed: int) -> tuple[Effect, ...]:
        assert isinstance(event, _To)
        process = self.processes[event.name]
        said = self._moments_later(now, seed)
        if event.event is None:
            said += self._goes_on(process, now, seed)
        else:
            said += self._takes(process, event.event, now, seed)
        return tuple(said + self._woken(now, seed))

    def _moments_later(self, now: int, seed: int) -> list[Effect]:
        """Who was not told for a moment that all go on as before waits for any decision."""
        said: list[Effect] = []
        for process in self.processes.values():
            waits = isinstance(process.request, m.Wait) and process.state.as_before
            if waits and now >= process.asked_at + machine.MOMENT:
                said += self._takes(process, m.Answered((None,)), now, seed)
        return said

    def _takes(self, process: _Process, event: Any, now: int, seed: int) -> list[Effect]:
        outcome = self.checked(process.state, event, now, seed)
        if outcome.refused:
            return list(outcome.effects)
        process.state = outcome.state
        if isinstance(event, m.Answered) or process.state.phase is Phase.Stopped:
            process.request = None
        said: list[Effect] = []
        for effect in outcome.effects:
            if isinstance(effect, m.Request):
                process.request, process.asked_at = effect, now
            else:
                said.append(effect)
            if isinstance(effect, m.Born):
                process.heartbeat = effect.heartbeat
            if isinstance(effect, m.Housekeeping):
                kept = {k: v for k, v in self.store.items() if k not in effect.delete}
                self.store = {**kept, keys.COUNTER: str(effect.iteration).encode()}
        return said + self._goes_on(process, now, seed)

    def _goes_on(self, process: _Process, now: int, seed: int) -> list[Effect]:
        """It asks the store, if it may and need not wait."""
        request = process.request
        if request is None or (process.held and process.state.asked == process.held):
            return []
        if isinstance(request, m.Wait) and request.key not in self.store:
            return []
        before = self.store
        self.store, values = perform(before, request)
        line = _Line(_asked(request, before, values))
        return [line, *self._takes(process, m.Answered(values), now, seed)]

    def _woken(self, now: int, seed: int) -> list[Effect]:
        said: list[Effect] = []
        for name, process in self.processes.items():
            request = process.request
            if isinstance(request, m.Wait) and request.key in self.store and not process.held:
                said += [_Line(f"rank {name}"), *self._goes_on(process, now, seed)]
        return said

    # What happens to the world.

    def ask_hold(self, name: str, before: str) -> list[str]:
        self.processes[name].held = Asked(before)
        return []

    def ask_torn(self, name: str) -> list[str]:
        (first, *_), before = parts(self.processes[name].request), self.store
        self.store, values = perform(before, first)
        return [_asked(first, before, values)]

    def ask_crash(self, name: str) -> list[str]:
        del self.processes[name]
        return []

    def ask_death_notice(self, rank: str) -> list[str]:
        key = keys.heartbeat(int(rank))
        beat = Heartbeat(*(read_heartbeat(self.store[key]) or ()))
        self.store = {**self.store, key: bytes(beat.ended(DEAD))}
        return [f"{key} is {self.store[key].decode()}"]

    def ask_write(self, key: str, *value: str) -> list[str]:
        self.store = {**self.store, key: " ".join(value).encode()}
        return []

    def ask_empty(self) -> list[str]:
        self.store = {}
        return []

    def ask_store(self) -> list[str]:
        return [f"{key} = {value.decode()}" for key, value in sorted(self.store.items())]

    def ask_show(self, name: str) -> list[str]:
        s = self.processes[name].state
        asked = f", asks for {s.asked}" if s.asked else ""
        return [f"{s.phase}, iteration {s.iteration}, process {s.incarnation}{asked}"]

    def ask_due(self, name: str, now: str = "0") -> list[str]:
        at = self.machine.next_tick(self.processes[name].state, round(float(now) * 1000))
        return ["never" if at is None else f"{at / 1000:g}"]

    def describe(self, effect: Effect) -> str:
        match effect:
            case _Line(text):
                return text
            case m.Born(incarnation):
                return f"is process {incarnation} of its rank, and sends heartbeats from now on"
            case m.Advanced(record, won):
                ranks = ", ".join(map(str, record.ranks))
                how = " by its own decision" if won else ""
                return f"takes part in iteration {record.iteration}{how}, with {ranks}"
            case m.Excluded(record):
                return f"was left out of iteration {record.iteration}"
            case m.Stalled(number, missing, why):
                ranks = ", ".join(map(str, missing))
                return f"cannot go on to iteration {number} without {ranks}: {why}"
            case m.Housekeeping(number, delete):
                return f"shows the number {number}" + "".join(f", deletes {key}" for key in delete)
            case m.Stopped(code, reason):
                return f"stopped, {code}: {reason}"
        return super().describe(effect)


def _asked(request: m.Request, before: Store, values: tuple[bytes | None, ...]) -> str:
    match request:
        case m.CompareSet(key, expected, desired):
            if before.get(key) == desired:
                return f"{key} is {_text(desired)}"
            done = f"{key}: {_text(expected)} => {_text(desired)}"
            return done if values[0] == desired else f"{done} refused, it is {_text(values[0])}"
        case m.Arrive(key, expected, desired, arrived):
            first = _asked(m.CompareSet(key, expected, desired), before, values[:1])
            return f"{first}; {arrived} has {_text(values[1])}"
        case m.Decide(key, expected, desired, wakeups):
            first = _asked(m.CompareSet(key, expected, desired), before, values[:1])
            return "; ".join([first, *(f"{key} is set" for key in wakeups if values[1:])])
        case m.Add(key):
            return f"{key} counts {_text(values[0])}"
        case m.GetMany(names):
            first = names[0] == keys.CONSENSUS and names[2:] != (names[-1],)
            return "looks at everything" if first else f"reads {', '.join(names)}"
        case m.Wait(key):
            return f"is woken by {key}"
        case m.Set(key):
            return f"{key} is set"


def _text(value: bytes | None) -> str:
    return value.decode() if value else "nothing"
