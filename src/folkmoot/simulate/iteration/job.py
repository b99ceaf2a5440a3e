"""A whole job as one machine: the store, and the processes of all ranks around it.

No rank is special, so there is no single machine to audit. What the worlds feed, check and write
down is this one. Its events say who does what next, not with which values: a process's request
reaches the store, its answer reaches the process, and so on. So a transcript is a schedule, which
a machine that was repaired follows in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from folkmoot.core.iteration import keys, machine
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.config import Rules
from folkmoot.core.iteration.record import DEAD, read_heartbeat, read_record
from folkmoot.core.iteration.state import Asked, RankState
from folkmoot.core.machine import Effect, Event, Outcome, decoder
from folkmoot.core.machine import encode as encode
from folkmoot.simulate.iteration.store import Store, Values, parts, perform

RUNNING, OVER = "running", "over"
MORE = 3  # iterations after the faults have stopped, the last one with all who are alive
TABLE = machine.TABLE


class Begin(Event, frozen=True, tag=True):
    """A process of a rank begins."""

    process: str
    rank: int


class Perform(Event, frozen=True, tag=True):
    """A request of a process reaches the store: late perhaps, or again, or only its first part."""

    process: str
    number: int
    torn: bool = False


class Hear(Event, frozen=True, tag=True):
    """The answer to a request reaches the process; `timeout`: it waited long enough for a key."""

    process: str
    number: int
    timeout: bool = False


class To(Event, frozen=True, tag=True):
    """Something else happens to a process."""

    process: str
    event: m.Finished | m.Silent | m.Beaten


class Beat(Event, frozen=True, tag=True):
    """A process's heartbeat reaches the store."""

    process: str


class Bury(Event, frozen=True, tag=True):
    """A process has died, and its launcher says so."""

    process: str


class Clean(Event, frozen=True, tag=True):
    """A winner's housekeeping reaches the store."""

    process: str


class Calm(Event, frozen=True, tag=True):
    """No fault is left, and these ranks are alive."""

    ranks: tuple[int, ...]


AnyEvent = Begin | Perform | Hear | To | Beat | Bury | Clean | Calm


class Answers(Effect, frozen=True, tag=True):
    """The store's answer."""

    values: Values


class Process(msgspec.Struct, frozen=True):
    """A process, and what is on its way between it and the store."""

    state: RankState
    requests: tuple[m.Request, ...] = ()  # all it has made; the last one is open
    heard: int = 0  # how many of them it has heard the answer to
    answer: Values = ()  # to the last one, when it was performed last
    heartbeat: bytes = b""
    chores: m.Housekeeping | None = None


class Job(msgspec.Struct, frozen=True):
    rules: Rules
    store: dict[str, bytes] = {}
    processes: dict[str, Process] = {}
    goal: int = -1  # once faults have stopped: the iteration at which this is over,
    alive: tuple[int, ...] = ()  # and the ranks that must be in it
    phase: str = RUNNING


decode = decoder(Job)


def create(rules: Rules) -> Job:
    return Job(rules)


def next_tick(job: Job, now: int) -> int | None:
    return None


def apply(job: Job, event: AnyEvent, now: int, seed: int) -> Outcome[Job]:
    if isinstance(event, Calm):
        record = read_record(job.store.get(keys.CONSENSUS), job.rules.world)
        goal = MORE + (record.iteration if record else -1)
        return Outcome(replace(job, goal=goal, alive=event.ranks), ())
    if isinstance(event, Begin):
        begun = Process(machine.create(job.rules, event.rank))
        return _tell(job, event.process, begun, m.Started(), now, seed)
    if event.process not in job.processes:
        return Outcome(job, ())
    return _DO[type(event)](job, event, job.processes[event.process], now, seed)


def _perform(job: Job, event: Perform, process: Process, now: int, seed: int) -> Outcome[Job]:
    if event.number >= len(process.requests):
        return Outcome(job, ())
    request = process.requests[event.number]
    store, values = perform(job.store, parts(request)[0] if event.torn else request)
    job = _with_store(job, store)
    if event.torn:
        return Outcome(job, (Answers(()),))  # which nobody hears
    if event.number == process.heard and values != process.answer:
        job = _with(job, event.process, replace(process, answer=values))
    return Outcome(job, (Answers(values),))


def _hear(job: Job, event: Hear, process: Process, now: int, seed: int) -> Outcome[Job]:
    values = (None,) if event.timeout else process.answer
    if not event.number == process.heard < len(process.requests) or not values:
        return Outcome(job, ())
    heard = replace(process, heard=process.heard + 1, answer=())
    return _tell(job, event.process, heard, m.Answered(values), now, seed)


def _to(job: Job, event: To, process: Process, now: int, seed: int) -> Outcome[Job]:
    if isinstance(event.event, m.Finished) and process.state.asked is Asked.Arrival:
        # Its first arrival is held back until it says so: then another takes its place.
        if process.answer:
            return Outcome(job, ())
        process = replace(process, requests=process.requests[: process.heard])
    return _tell(job, event.process, process, event.event, now, seed)


def _beat(job: Job, event: Beat, process: Process, now: int, seed: int) -> Outcome[Job]:
    standing = read_heartbeat(process.heartbeat)
    if standing is None:
        return Outcome(job, ())
    request = machine.send_heartbeat(process.state.rank, standing)
    store, values = perform(job.store, request)
    if values == (request.desired,):
        process = replace(process, heartbeat=request.desired)
        job = _with(_with_store(job, store), event.process, process)
    return Outcome(job, (Answers(values),))


def _bury(job: Job, event: Bury, process: Process, now: int, seed: int) -> Outcome[Job]:
    standing = read_heartbeat(process.heartbeat)
    if standing is None:
        return Outcome(job, ())
    key, end = keys.heartbeat(process.state.rank), bytes(standing.ended(DEAD))
    store, values = perform(job.store, m.CompareSet(key, bytes(standing), end))
    return Outcome(_with_store(job, store), (Answers(values),))


def _clean(job: Job, event: Clean, process: Process, now: int, seed: int) -> Outcome[Job]:
    if process.chores is None:
        return Outcome(job, ())
    kept = {key: v for key, v in job.store.items() if key not in process.chores.delete}
    kept[keys.COUNTER] = str(process.chores.iteration).encode()
    return Outcome(_with_store(job, kept), ())


_DO: dict[type, Callable[[Job, Any, Process, int, int], Outcome[Job]]] = {
    Perform: _perform,
    Hear: _hear,
    To: _to,
    Beat: _beat,
    Bury: _bury,
    Clean: _clean,
}


def _tell(
    job: Job, name: str, process: Process, event: m.AnyEvent, now: int, seed: int
) -> Outcome[Job]:
    """A process takes an event, and what it asks for is under way."""
    state, effects = machine.apply(process.state, event, now, seed)
    if state is process.state:
        return Outcome(job, effects)
    process = replace(process, state=state)
    for effect in effects:
        if isinstance(effect, m.Request):
            process = replace(process, requests=(*process.requests, effect))
        elif isinstance(effect, m.Born):
            process = replace(process, heartbeat=effect.heartbeat)
        elif isinstance(effect, m.Housekeeping):
            process = replace(process, chores=effect)
    return Outcome(_with(job, name, process), effects)


def _with(job: Job, name: str, process: Process) -> Job:
    return replace(job, processes={**job.processes, name: process})


def _with_store(job: Job, store: Store) -> Job:
    if store is job.store:
        return job
    phase, register = job.phase, store.get(keys.CONSENSUS)
    if job.goal >= 0 and register != job.store.get(keys.CONSENSUS):
        record = read_record(register, job.rules.world)
        if record and record.iteration >= job.goal and set(record.ranks) == set(job.alive):
            phase = OVER
    return replace(job, store=store, phase=phase)
