"""What ranks write and read, who is silent, and what holds under any schedule."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from folkmoot.core.iteration import Heartbeats, Rules, machine
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.record import (
    HIGHEST,
    Arrival,
    Behind,
    Heartbeat,
    Member,
    Note,
    Record,
    decision,
    encode_note,
    encode_record,
    is_beating,
    read_arrival,
    read_heartbeat,
    read_notes,
    read_record,
)
from folkmoot.core.iteration.state import Phase, RankState
from folkmoot.simulate.iteration.audit import IterationAudit
from folkmoot.simulate.iteration.job import Beat, Begin, Bury, Clean, Hear, Perform, To
from folkmoot.simulate.iteration.store import Store, perform

NUMBERS = st.integers(0, HIGHEST)


@given(st.builds(Arrival, st.integers(-1, HIGHEST), NUMBERS, NUMBERS))
def test_an_arrival_is_read_as_it_was_written(arrival: Arrival) -> None:
    assert read_arrival(bytes(arrival)) == arrival


@given(st.builds(Heartbeat, NUMBERS, st.sampled_from(("0", "7", "dead", "left"))))
def test_a_heartbeat_is_read_as_it_was_written(beat: Heartbeat) -> None:
    assert read_heartbeat(bytes(beat)) == beat


@given(st.from_regex(rb"[0-9]{0,16}:?(dead|left|[0-9]{0,16})\n?") | st.binary())
def test_a_heartbeat_beats_if_it_can_be_read_and_is_not_over(value: bytes) -> None:
    beat = read_heartbeat(value)
    assert bool(is_beating(value)) == (beat is not None and not beat.over)


@pytest.mark.parametrize("text", [None, b"", b"1", b"1:2:3:4", b"-2:1:0", b" 1:1:1", b"1:1:1\n"])
def test_what_is_no_arrival_is_none(text: bytes | None) -> None:
    assert read_arrival(text) is None
    assert read_heartbeat(text) is None


def test_a_record_is_read_as_it_was_written_and_only_for_its_world() -> None:
    record = decision(7, (Note(2, 3, 9), Note(0, 1, 5)), (1,))
    assert record == Record(7, 9, (Member(0, 1), Member(2, 3)), (Behind(0, 5),), (1,))
    assert read_record(encode_record(record), 3) == record
    assert read_record(encode_record(record), 2) is None


@given(st.dictionaries(st.integers(0, 5), st.integers(0, 3), min_size=1))
def test_a_record_has_the_processes_that_are_its_members(members: dict[int, int]) -> None:
    record = decision(0, [Note(rank, number, 0) for rank, number in members.items()], ())
    for rank in range(6):
        for incarnation in range(4):
            assert record.has(rank, incarnation) == (members.get(rank) == incarnation)


GOOD = b'{"iteration":0,"progress":0,"members":[[0,1]],"behind":[],"admit":[]}'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"7",
        b"{}",
        GOOD.replace(b'"iteration":0', b'"iteration":-1'),
        GOOD.replace(b"[[0,1]]", b"[]"),
        GOOD.replace(b"[[0,1]]", b"[[0]]"),
        GOOD.replace(b"[[0,1]]", b"[[0,1],[3,1]]"),
        GOOD.replace(b"[[0,1]]", b"[[1,1],[0,1]]"),
        GOOD.replace(b"[[0,1]]", b"[[0,1],[0,2]]"),
        GOOD.replace(b"[[0,1]]", b"[[0,1]"),
        GOOD.replace(b"[[0,1]]", b"[[0,-1]]"),
        GOOD.replace(b'"behind":[]', b'"behind":[[3,0]]'),
        GOOD.replace(b'"admit":[]', b'"admit":[9]'),
        GOOD.replace(b'"progress":0', b'"progress":0,"more":1'),
        b"[" * 5000,
    ],
)
def test_what_is_no_record_is_none(text: bytes) -> None:
    assert read_record(GOOD, 3) is not None
    assert read_record(text, 3) is None


@given(st.lists(st.builds(Note, st.integers(0, 5), st.integers(0, 3), NUMBERS)))
def test_of_several_notes_of_a_rank_the_newest_process_counts(notes: list[Note]) -> None:
    newest: dict[int, Note] = {}
    for note in sorted(notes, key=lambda x: x.incarnation):  # stable: the last one of equals
        newest[note.rank] = note
    assert read_notes(b"".join(map(encode_note, notes))) == newest


def test_what_is_no_list_of_notes_is_none() -> None:
    good = encode_note(Note(1, 1, 7))
    assert read_notes(good) == {1: Note(1, 1, 7)}
    assert read_notes(None) == {}
    for bad in (b"\xff", b"[1,1]", b"[1,-1,4]", b"[1,1,1,1],", b"[1," + b"9" * 16 + b",1],", b"["):
        assert read_notes(good + bad) is None


# Heartbeats.


def test_a_heartbeat_that_stands_still_is_silent_until_it_moves() -> None:
    seen = Heartbeats(timeout=100)
    seen.look([b"1:0", None], 0)
    seen.look([b"1:0", None], 99)
    assert seen.silent(99) == ()
    assert seen.silent(100) == (0,)
    seen.look([b"1:1", None], 150)
    assert seen.silent(249) == ()


def test_a_rank_that_never_came_is_not_silent_and_one_that_ended_is_at_once() -> None:
    seen = Heartbeats(timeout=100)
    seen.look([None, b"1:dead", b"2:left", b"garbage"], 0)
    assert seen.silent(0) == (1, 2, 3)
    assert seen.silent(10_000) == (1, 2, 3)


def test_only_our_own_clock_counts() -> None:
    near, far = Heartbeats(timeout=100), Heartbeats(timeout=100)
    for passed in range(0, 300, 50):
        near.look([b"1:0"], passed)
        far.look([b"1:0"], passed + 3_600_000)
        assert near.silent(passed) == far.silent(passed + 3_600_000)


# Housekeeping.


def run_to(state: RankState, request: Any, store: Store) -> tuple[RankState, Store]:
    """Let a rank that is alone go on until it trains."""
    while request is not None:
        store, values = perform(store, request)
        state, effects = machine.apply(state, m.Answered(values), 0, 0)
        request = next((e for e in effects if isinstance(e, m.Request)), None)
        for effect in effects:
            if isinstance(effect, m.Housekeeping):
                store = {k: v for k, v in store.items() if k not in effect.delete}
    return state, store


def test_ten_thousand_iterations_leave_no_more_keys_than_ten() -> None:
    sizes = []
    state, effects = machine.apply(machine.create(Rules(1), 0), m.Started(), 0, 0)
    state, store = run_to(state, effects[-1], {})
    for number in range(10_000):
        assert state.phase is Phase.Training
        state, effects = machine.apply(state, m.Finished(number), 0, 0)
        state, store = run_to(state, effects[-1], store)
        sizes.append(len(store))
    assert state.iteration == 10_000
    assert max(sizes) == max(sizes[:10]) < 20


# Any schedule.

KINDS = ("perform", "hear", "timeout", "finish", "silent", "beat", "bury", "begin")
CHOICES = st.tuples(
    st.sampled_from(("hear", "hear", "hear", *KINDS)),
    st.integers(0, 63),
    st.integers(0, 63),
)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.lists(CHOICES, max_size=120), st.booleans())
@example(1, [*[("hear", 0, 1)] * 4, ("finish", 0, 0), *[("hear", 0, 1)] * 2], False)
def test_what_must_hold_does_under_any_schedule(
    world: int, choices: list[tuple[str, int, int]], hasty: bool
) -> None:
    audit = IterationAudit(Rules(world, join_timeout=0 if hasty else 1000))
    audit.submit(0, 0, Begin("0.0", 0))
    for now, (kind, who, extra) in enumerate(choices):
        names = sorted(audit.state.processes)
        name = names[who % len(names)]
        process = audit.state.processes[name]
        stopped = process.state.phase is Phase.Stopped
        number = len(process.requests) - 1 - extra % 2
        event: Any = {
            "perform": Perform(name, max(number, 0)),
            "hear": Hear(name, process.heard),
            "finish": To(name, m.Finished(extra)),
            "silent": To(name, m.Silent(tuple(r for r in range(world) if extra >> r & 1))),
            "beat": Beat(name),
            "bury": Bury(name),
            "begin": Begin(f"{extra % world}.{now}", extra % world),
            "timeout": Clean(name),
        }[kind]
        if kind == "timeout" and isinstance(process.requests[-1], m.Wait):
            event = Hear(name, process.heard, timeout=True)
        if kind == "silent" and stopped:
            continue
        if kind == "hear" and extra % 4:  # most often, an answer comes at once
            audit.submit(now * 100, extra, Perform(name, process.heard))
        audit.submit(now * 100, extra, event)


GARBAGE = st.one_of(
    st.none(),
    st.binary(min_size=1, max_size=40),
    st.builds(lambda a: bytes(a), st.builds(Arrival, st.integers(-1, 3), NUMBERS, NUMBERS)),
    st.builds(lambda b: bytes(b), st.builds(Heartbeat, NUMBERS, st.just("3"))),
    st.builds(lambda n: encode_record(decision(n, (Note(0, 1, 0),), (1,))), st.integers(0, 3)),
)


MEMBERS = st.builds(Note, st.integers(0, 3), st.integers(0, 3), NUMBERS)
NOTES = st.one_of(st.binary(max_size=20), MEMBERS.map(encode_note), st.just(b"[0,1,0],[1,1,0],"))
PILES = st.one_of(st.none(), st.lists(NOTES, max_size=6).map(b"".join))


@settings(deadline=None)
@given(st.data())
def test_a_store_full_of_garbage_never_breaks_a_rank(data: st.DataObject) -> None:
    state, effects = machine.apply(machine.create(Rules(2), 0), m.Started(), 0, 0)
    for step in range(25):
        request = next((e for e in effects if isinstance(e, m.Request)), None)
        if request is None:
            state, effects = machine.apply(state, m.Finished(step), 0, 0)
            if state.phase is Phase.Stopped:
                return
            continue
        state, effects = machine.apply(state, m.Answered(answer(data, request)), 0, 0)
        assert machine.decode(machine.encode(state)) == state


def answer(data: st.DataObject, request: Any) -> tuple[bytes | None, ...]:
    match request:
        case m.Add():
            return (str(data.draw(st.integers(-(2**63), 2**63 - 1))).encode(),)
        case m.Arrive(_, _, desired):
            if data.draw(st.booleans()):
                return (data.draw(GARBAGE), data.draw(PILES))
            waited = (data.draw(GARBAGE),) if data.draw(st.booleans()) else ()
            return (desired, data.draw(PILES), *waited)
        case m.GetMany(keys):
            return tuple(data.draw(GARBAGE) for _ in keys)
        case m.CompareSet(_, _, desired) if data.draw(st.booleans()):
            return (desired,)
    return (data.draw(GARBAGE),)


# An arrival that waits in the same breath.

WORLD = 3
RANKS = st.sets(st.integers(0, WORLD - 1), min_size=1)


def arrived(last: set[int], target: int, silent: tuple[int, ...]) -> tuple[RankState, m.Arrive]:
    """Rank 0, process 1, as it asks to arrive after a decision with the ranks `last` and itself."""
    record = decision(target - 1, [Note(rank, 1, 4) for rank in {0, *last}], ())
    state = RankState(
        Rules(WORLD), 0, Phase.Training, incarnation=1, register=encode_record(record),
        record=record, target=target - 1, silent=silent, arrival=bytes(Arrival(target - 2, 1, 3)),
    )  # fmt: skip
    state, effects = machine.apply(state, m.Finished(5), 10, 0)
    (request,) = (e for e in effects if isinstance(e, m.Arrive))
    return state, request


@given(RANKS, st.sets(st.integers(1, 2)), RANKS, st.integers(-1, 2), st.integers(1, 2))
def test_to_wait_in_the_same_breath_is_to_arrive_and_then_to_wait(
    last: set[int], silent: set[int], members: set[int], further: int, process: int
) -> None:
    target = 7
    state, request = arrived(last, target, tuple(silent))
    found = decision(target + further, [Note(r, process, 5) for r in members], ())
    listed = request.note if request.enough > 1 else b""
    for value in (None, b"garbage", encode_record(found)):
        at_once = machine.apply(state, m.Answered((request.desired, listed, value)), 20, 9)
        waiting = machine.apply(state, m.Answered((request.desired, listed)), 20, 9)
        if not any(isinstance(e, m.Wait) for e in waiting.effects):
            assert request.enough <= 1  # it would not have been waited for
            return
        later = machine.apply(waiting.state, m.Answered((value,)), 20, 9)
        assert at_once.state == later.state
        told = [e for e in at_once.effects if not isinstance(e, m.StateChanged)]
        assert told == [e for e in later.effects if not isinstance(e, m.StateChanged)]


def last_to_arrive(notes: list[Note], silent: tuple[int, ...] = ()) -> Any:
    """What rank 0 asks for next when it finds these notes besides its own, for iteration 7."""
    state, request = arrived({0, 1, 2}, 7, silent)
    listed = request.note + b"".join(map(encode_note, notes))
    _, effects = machine.apply(state, m.Answered((request.desired, listed)), 20, 0)
    return next(e for e in effects if isinstance(e, m.Request))


def test_who_is_told_that_all_go_on_as_before_knows_the_decision_to_the_byte() -> None:
    decided = last_to_arrive([Note(1, 1, 5), Note(2, 1, 5)])
    assert decided.wakeups == ("global_iteration_ready:7:as_before", "global_iteration_ready:7")
    state, request = arrived({0, 1, 2}, 7, ())
    assert (request.wakeup, request.then) == (decided.wakeups[0], "")
    told = machine.apply(state, m.Answered((request.desired, request.note, b"")), 20, 0)
    assert told.state.phase is Phase.Training
    assert told.state.register == decided.desired
    assert told.state.record == read_record(decided.desired, WORLD)
    assert m.Advanced(told.state.record, won=False) in told.effects


@pytest.mark.parametrize(
    "others", [[Note(1, 1, 4), Note(2, 1, 5)], [Note(1, 1, 5), Note(2, 1, 6)]], ids=str
)
def test_nobody_is_told_that_all_go_on_as_before_if_one_is_less_far(others: list[Note]) -> None:
    decided = last_to_arrive(others)
    assert isinstance(decided, m.Decide)
    assert decided.wakeups == ("global_iteration_ready:7",)


@pytest.mark.parametrize("last", [{0, 1}, {0}], ids=str)
def test_who_may_be_missing_is_asked_about_where_it_was_decided(last: set[int]) -> None:
    for ranks, silent in ((last, ()), ({0, 1, 2}, (2,))):
        _, request = arrived(ranks, 7, silent)
        assert (request.wakeup, request.then) == (machine.keys.ready(7), machine.keys.CONSENSUS)


def test_who_is_not_told_for_a_moment_waits_for_any_decision_and_does_not_look_yet() -> None:
    state, request = arrived({0, 1, 2}, 7, ())
    assert request.ms == machine.MOMENT
    waits = machine.apply(state, m.Answered((request.desired, request.note, None)), 20, 0)
    (wait,) = (e for e in waits.effects if isinstance(e, m.Request))
    assert isinstance(wait, m.Wait)
    assert (wait.key, wait.then) == (machine.keys.ready(7), machine.keys.CONSENSUS)
    assert wait.ms > machine.MOMENT


def test_an_arrival_waits_for_the_wakeup_that_its_wait_would_wait_for() -> None:
    state, request = arrived({0, 1, 2}, 7, ())
    _, effects = machine.apply(state, m.Answered((request.desired, request.note)), 20, 0)
    (wait,) = (e for e in effects if isinstance(e, m.Wait))
    assert (request.wakeup, request.ms, request.then) == (wait.key, wait.ms, wait.then)
    assert request.enough == WORLD
