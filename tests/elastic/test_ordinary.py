"""The short way of an ordinary advance is the machine's, byte for byte, whatever is answered.

Both are given the same answers: ordinary ones, and any others, in pieces, late, cut off, with
errors, interrupts and news of the heartbeats between. They must send the same bytes, come to the
same state or error, tell and clean up the same, and leave the same unread.
"""

import struct
from collections import deque
from contextlib import ExitStack
from itertools import chain, combinations, repeat
from typing import Any, NamedTuple, cast
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from folkmoot.authority.store.kv import tcp, tcp_wire
from folkmoot.authority.store.kv.memory import MemoryStore
from folkmoot.authority.store.kv.prefix import PrefixStore
from folkmoot.authority.store.kv.tcp import TcpStore
from folkmoot.core.iteration import Member, Record, Rules
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.machine import READY, TRAINING
from folkmoot.core.iteration.record import (
    HIGHEST,
    Arrival,
    Behind,
    Note,
    encode_note,
    encode_record,
)
from folkmoot.core.iteration.state import RankState
from folkmoot.elastic import GlobalIteration, heartbeat, requests
from folkmoot.elastic import global_iteration as loop
from folkmoot.elastic.ordinary import prepare

Item = bytes | float | BaseException | m.Silent | m.Beaten
"""What a socket meets: bytes that come, seconds in which none do, what it raises, and news."""
CLOSED = b""
GREETING = 10  # bytes
JOB = "a%d job"


class Clock:
    def __init__(self) -> None:
        self.ns = 10**12 + 500_000

    def monotonic(self) -> float:
        return self.ns / 1e9

    def monotonic_ns(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)


class ScriptedSocket:
    """Receives what the script says, one item at a time; then nothing more."""

    def __init__(
        self, clock: Clock, script: list[Item], news: deque[Any], send_fails: tuple[int, OSError]
    ) -> None:
        self._clock, self._news = clock, news
        self.script = deque(script)
        self._send_fails, self._sends = send_fails, 0
        self._patience = 0
        self.unread, self.sent = b"", b""

    def sendall(self, data: bytes) -> None:
        if not self.sent:
            self.unread = data[-4:]  # it answers the greeting
        self._sends += 1
        if self._sends == self._send_fails[0]:
            raise self._send_fails[1]
        self.sent += data

    def recv(self, most: int) -> bytes:
        if not self.readable(self._patience):
            raise BlockingIOError
        if not self.unread:
            if self.script[0] == CLOSED:
                return CLOSED
            item = self.script.popleft()
            if isinstance(item, BaseException):
                raise item
            self.unread = cast(bytes, item)
        got, self.unread = self.unread[:most], self.unread[most:]
        return got

    def readable(self, patience: int) -> bool:
        """Whether there is something to receive within so many nanoseconds."""
        while not self.unread:
            item = self.script[0] if self.script else 1e9
            if isinstance(item, bytes | BaseException):
                break
            if isinstance(item, float):
                waited = min(round(item * 1e9), patience)
                self._clock.ns += waited
                patience -= waited
                if round(item * 1e9) > waited:
                    if self.script:
                        self.script[0] = item - waited / 1e9
                    return False
            else:
                self._news.append(item)
            self.script.popleft()
        return True

    def setsockopt(self, level: int, option: int, value: bytes | int) -> None:
        if isinstance(value, bytes) and option == tcp_wire.socket.SO_RCVTIMEO:
            seconds, micros = struct.unpack("@ll", value)
            self._patience = seconds * 10**9 + micros * 1000

    def settimeout(self, seconds: float | None) -> None: ...
    def shutdown(self, how: int) -> None: ...
    def close(self) -> None: ...


def scripted_readable(of: ScriptedSocket, seconds: float) -> bool:
    return of.readable(round(seconds * 1e9))


class StillHeartbeat:
    """In the place of the heartbeats' thread."""

    def __init__(self, clock: Clock, soon: int) -> None:
        self._clock = clock
        self.events: deque[Any] = deque()
        self.silence_at = clock.ns // 1_000_000 + soon
        self.chores: list[m.Housekeeping] = []

    def until_silence(self) -> int:
        return self.silence_at - self._clock.ns // 1_000_000

    def do_later(self, chores: m.Housekeeping) -> None:
        self.chores.append(chores)


class Case(NamedTuple):
    state: RankState
    steps: list[int]
    """The progress with which each advance is asked for."""
    script: list[Item]
    send_fails: tuple[int, OSError] = (0, OSError())
    soon: int = 60_000
    iterations: int | None = None
    timeout: float = 10.0
    waiting: bool = False
    """Whether the server waits for something that nobody wants any more."""
    busy: bool = False
    """Whether another thread uses the connection."""


class Seen(NamedTuple):
    """Everything that can be seen of some advances."""

    ended: list[str]
    state: RankState
    request: m.Request | None
    sent: bytes
    told: list[Any]
    warned: list[Any]
    chores: list[m.Housekeeping]
    news: list[Any]
    waiting: bool
    unread: bytes
    to_come: list[str]
    ms: int


def run(case: Case, *, short: bool) -> Seen:
    clock = Clock()
    beats = StillHeartbeat(clock, case.soon)
    script = [type(x)(*x.args) if isinstance(x, BaseException) else x for x in case.script]
    socket = ScriptedSocket(clock, script, beats.events, case.send_fails)
    nobody = ConnectionRefusedError("nobody is there")
    with ExitStack() as stack:
        for module in (tcp, tcp_wire, requests, loop, heartbeat):
            stack.enter_context(mock.patch.object(module, "time", clock))
        stack.enter_context(mock.patch.object(loop.random, "getrandbits", return_value=7))
        stack.enter_context(mock.patch.object(requests, "backoff", return_value=repeat(12.0)))
        stack.enter_context(
            mock.patch.object(
                tcp_wire.socket,
                "create_connection",
                mock.Mock(side_effect=chain([socket], repeat(nobody))),
            )
        )
        stack.enter_context(mock.patch.object(tcp_wire, "_readable", scripted_readable))
        stack.enter_context(mock.patch.object(loop, "logger"))
        if not short:
            stack.enter_context(mock.patch.object(loop, "prepare", return_value=None))
        return advance(case, clock, beats, socket)


def advance(case: Case, clock: Clock, beats: StillHeartbeat, socket: ScriptedSocket) -> Seen:
    store = TcpStore("host", 1, timeout=case.timeout)
    assert store.connection is not None
    store.waiting = case.waiting
    if case.busy:
        store.busy.acquire()
    it = GlobalIteration(store, case.state.rank, case.state.rules.world, JOB)
    it.rules, it._iterations, it._state = case.state.rules, case.iterations, case.state
    it._opened, it.store, it._heartbeat = store, PrefixStore(store, JOB), cast(Any, beats)
    it._left_out, it._member, it._logs = False, True, True
    ended: list[str] = []
    told: list[Any] = []
    it._log.listener = told.append
    it._ordinary = loop.prepare(it._opened, it.job, it._state, case.iterations)
    for progress in case.steps:
        it.progress = progress
        try:
            ended.append(str(it.advance()))
        except BaseException as error:
            ended.append(f"{type(error).__name__}: {error}")
    connection = store.connection
    unread = connection._received[connection._taken :] + socket.unread if connection else b""
    return Seen(
        ended,
        it._state,
        it._request,
        socket.sent[GREETING:],
        told,
        cast(mock.Mock, loop.logger).mock_calls,
        beats.chores,
        list(beats.events),
        store.waiting,
        unread,
        list(map(repr, socket.script)),
        clock.ns // 1_000_000,
    )


def hold_equal(case: Case) -> Seen:
    short, by_steps = run(case, short=True), run(case, short=False)
    # An answer in pieces restarts the time for the rest: a few moments of ten seconds.
    assert abs(short.ms - by_steps.ms) <= 300
    assert short._replace(ms=0) == by_steps._replace(ms=0)
    assert repr(short.told) == repr(by_steps.told)  # 51.0 is not what a log has for 51
    return short


# Ordinary advances.


def sized(text: bytes) -> bytes:
    return struct.pack("=Q", len(text)) + text


def trained(world: int, rank: int, iteration: int, progress: int, **changed: Any) -> RankState:
    """A rank that trains an iteration with everybody."""
    members = tuple(Member(r, 1 + r % 3) for r in range(world))
    record = Record(iteration, progress, members, (), ())
    incarnation = 1 + rank % 3
    return RankState(
        Rules(world, **changed),
        rank,
        TRAINING,
        incarnation=incarnation,
        heartbeat=b"%d:0" % incarnation,
        arrival=bytes(Arrival(iteration - 1, incarnation, progress)),
        register=encode_record(record),
        record=record,
        target=iteration,
        progress=progress,
    )


def answers(
    state: RankState, progress: int, order: list[int], winner: int
) -> tuple[list[bytes], RankState]:
    """What the store answers in an ordinary advance, and the state after it."""
    assert state.record is not None
    record = replace(state.record, iteration=state.record.iteration + 1, progress=progress)
    mine = bytes(Arrival(state.record.iteration, state.incarnation, progress))
    incarnations = {x.rank: x.incarnation for x in record.members}
    there = order[: order.index(state.rank) + 1] if winner != state.rank else order
    listed = b"".join(encode_note(Note(r, incarnations[r], progress)) for r in there)
    register = encode_record(record)
    after = replace(
        state,
        arrival=mine,
        register=register,
        record=record,
        progress=progress,
        target=record.iteration,
    )
    said = [sized(mine), sized(listed)]
    if winner == state.rank:
        return [*said, tcp_wire.WAIT_CANCELED, sized(register), tcp_wire.THERE], after
    return [*said, tcp_wire.STOP_WAITING], after


numbers = st.sampled_from([1, 2, 5, 8, 9, 10, 11, 98, 99, 100, 12345])


@st.composite
def ordinary(draw: st.DrawFn) -> Case:
    """Some ordinary advances in a row."""
    world = draw(st.sampled_from([1, 2, 3, 12]))
    rank = draw(st.integers(0, world - 1))
    state = first = trained(world, rank, draw(numbers), draw(numbers))
    steps: list[int] = []
    script: list[Item] = []
    for order in draw(st.lists(st.permutations(range(world)), min_size=1, max_size=3)):
        steps.append(max(0, state.progress + draw(st.sampled_from([0, 1, 1, 1, 7, -1]))))
        these, state = answers(state, steps[-1], list(order), order[-1])
        script += these
    return Case(first, steps, script)


@given(ordinary())
def test_an_ordinary_advance_is_what_the_machine_makes_of_it(case: Case) -> None:
    seen = hold_equal(case)
    assert seen.ended == ["True"] * len(case.steps)
    assert seen.to_come == []


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("world", [2, 12, 128])
@pytest.mark.parametrize("together", [False, True])
def test_an_ordinary_advance_takes_the_short_way(winner: int, world: int, together: bool) -> None:
    state = trained(world, 0, 5, 50)
    order = [*range(2, world), 1 - winner, winner]
    said, _ = answers(state, 51, order, winner)
    if together:  # what is answered to one request comes at once
        said = [b"".join(said[:2]), b"".join(said[2:4]), *said[4:]]
    with mock.patch.object(GlobalIteration, "_advance_by_steps") as by_steps:
        run(Case(state, [51], list(said)), short=True)
    by_steps.assert_not_called()


def of_two_ranks(first: RankState, steps: list[int], winner: int) -> Case:
    """Ordinary advances of rank 0, which the winner decides, the last to arrive."""
    state, script = first, list[Item]()
    for step in steps:
        said, state = answers(state, step, [1 - winner, winner], winner)
        script += said
    return Case(first, steps, script)


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("iteration", [8, 98, HIGHEST - 2, HIGHEST - 1, HIGHEST])
@pytest.mark.parametrize("progress", [8, 98, HIGHEST - 2, HIGHEST - 1])
@pytest.mark.parametrize("iterations", [None, 10, HIGHEST, 10**17])
def test_numbers_get_another_digit_or_come_to_their_end(
    winner: int, iteration: int, progress: int, iterations: int | None
) -> None:
    """One advance after another, up to where there is another digit, or none of them any more."""
    steps = [progress + more for more in (1, 2, 3, 4, 5)]
    case = of_two_ranks(trained(2, 0, iteration, progress), steps, winner)
    hold_equal(case._replace(iterations=iterations))


# Any others.

INSERTED: list[Item] = [
    *(0.03, 0.25, 0.7, 2.0, 20.0),
    *(ConnectionResetError(104, "reset"), OSError(113, "no route"), KeyboardInterrupt()),
    *map(m.Silent, [(), (0,), (1,), (0, 1)]),
    *map(m.Beaten, [None, b"9:1", b"1:7", b"?"]),
    CLOSED,
]


def other_answers(case: Case) -> list[bytes]:
    """What a store, or whoever is in its place, may say instead."""
    record = case.state.record
    assert record is not None
    after = replace(record, iteration=record.iteration + 1, progress=case.steps[0])
    less = record.members[1:] or (Member(0, 7),)
    newer = (*record.members[:-1], Member(record.members[-1].rank, 9))
    records = [
        *(replace(after, iteration=after.iteration + more) for more in (-2, -1, 1)),
        *(replace(after, progress=after.progress + more) for more in (1, 100)),
        *(replace(after, members=members) for members in (less, newer)),
        replace(after, behind=(Behind(0, 0),)),
        replace(after, admit=(0,)),
    ]
    notes = [Note(x.rank, x.incarnation, case.steps[0]) for x in record.members]
    lists = [
        notes,
        [*notes, notes[0]],
        notes[1:] + notes[1:2],
        [replace(notes[0], incarnation=9), *notes[1:]],
        [replace(notes[-1], progress=notes[-1].progress + 1), *notes[:-1]],
    ]
    mine = Arrival(record.iteration, case.state.incarnation, case.steps[0])
    texts = [
        *map(encode_record, records),
        encode_record(after).replace(b",", b", "),
        encode_record(after).replace(b'"progress":', b'"progress":0'),
        *(b"".join(map(encode_note, listed)) for listed in lists),
        b"".join(map(encode_note, notes)) + b"?",
        b"".join(map(encode_note, notes)) + b",%d]," % case.steps[0],
        *(bytes(mine._replace(incarnation=mine.incarnation + more)) for more in (-1, 1)),
        *(b"", b"?", tcp_wire.NO_VALUE, case.state.register, case.state.arrival),
    ]
    single = [b"\0", b"\1", b"\2", b"\0\1", struct.pack("=Q", 2**40), sized(b"?")[:5]]
    return [*map(sized, texts), *single]


def two_advances(winner: int) -> Case:
    """Of rank 1; the first is decided by another, or by itself."""
    state = first = trained(3, 1, 5, 50)
    order = [0, 1, 2] if winner == 2 else [0, 2, 1]
    said, state = answers(state, 51, order, winner)
    more, _ = answers(state, 52, [1, 0, 2], 2)
    return Case(first, [51, 52], [*said, *more])


@pytest.mark.parametrize("winner", [1, 2])
def test_anything_may_come_between_any_two_answers(winner: int) -> None:
    case = two_advances(winner)
    for at in range(len(case.script)):
        for item in INSERTED:
            hold_equal(case._replace(script=[*case.script[:at], item, *case.script[at:]]))


def joined(winner: int, script: list[Item]) -> list[Item]:
    """What is answered to one request of `two_advances`, at once: as it mostly comes."""
    counts, left = ((2, 2, 1) if winner == 1 else (2, 1)) + (2, 1), list(script)
    made: list[Item] = []
    for count in counts:
        made.append(b"".join(cast(list[bytes], left[:count])))
        del left[:count]
    return made


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("together", [False, True])
def test_any_answer_may_be_another(winner: int, together: bool) -> None:
    case = two_advances(winner)
    for at in range(len(case.script)):
        for other in other_answers(case):
            script: list[Item] = [*case.script[:at], other, *case.script[at + 1 :]]
            hold_equal(case._replace(script=joined(winner, script) if together else script))


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("more", [b"", b"\0", b"\1", sized(b"?")])
def test_answers_may_come_together_and_more_with_them(winner: int, more: bytes) -> None:
    case = two_advances(winner)
    stream = cast(list[bytes], case.script)
    for begin, end in combinations(range(len(stream) + 1), 2):
        script: list[Item] = [*stream[:begin], b"".join(stream[begin:end]) + more, *stream[end:]]
        hold_equal(case._replace(script=script))


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("then", [0.03, 0.25, 20.0, CLOSED, m.Silent((0,)), KeyboardInterrupt()])
def test_an_answer_may_come_in_pieces_or_end(winner: int, then: Item) -> None:
    case = two_advances(winner)
    stream = b"".join(item for item in case.script if isinstance(item, bytes))
    for at in range(len(stream) // 2 + 10):
        hold_equal(case._replace(script=[stream[:at] or 0.0, then, stream[at:]]))


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("together", [False, True])
def test_any_byte_may_be_another(winner: int, together: bool) -> None:
    case = two_advances(winner)
    script = joined(winner, case.script) if together else case.script
    for at, item in enumerate(script):
        assert isinstance(item, bytes)
        for where in range(len(item)):
            changed = item[:where] + bytes([item[where] ^ 1]) + item[where + 1 :]
            hold_equal(case._replace(script=[*script[:at], changed, *script[at + 1 :]]))


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize(
    "changed",
    [
        {"deaf": True},
        {"missing": (1,)},
        {"look": True},
        {"silent": (1,)},
        {"since": 7},
    ],
)
def test_what_held_before_an_advance_is_over_after_it(winner: int, changed: dict[str, Any]) -> None:
    state = replace(trained(2, 0, 5, 50), **changed)
    hold_equal(of_two_ranks(state, [51], winner))


@pytest.mark.parametrize("winner", [0, 1])
@pytest.mark.parametrize("steps", [[49], [50, 49], [51, 50]])
def test_who_has_fewer_steps_than_are_decided_says_so(winner: int, steps: list[int]) -> None:
    assert hold_equal(of_two_ranks(trained(2, 0, 5, 50), steps, winner)).warned


@pytest.mark.parametrize("iteration", [9, 10, 11])
@pytest.mark.parametrize("before", [9, 10, 11, 99, 100])
def test_a_rank_may_have_counted_more_steps_than_are_decided(iteration: int, before: int) -> None:
    state = replace(trained(2, 0, iteration, 9), progress=before)
    hold_equal(of_two_ranks(state, [9], 1))


@pytest.mark.parametrize("winner", [1, 2])
@pytest.mark.parametrize("error", [BrokenPipeError(32, "broken"), BlockingIOError()])
def test_any_request_may_not_be_sent(winner: int, error: OSError) -> None:
    case = two_advances(winner)
    for which in range(2, 7):
        hold_equal(case._replace(send_fails=(which, error)))


@st.composite
def any_case(draw: st.DrawFn) -> Case:
    """Ordinary advances with something in them that is not."""
    case = draw(ordinary())
    script = list(case.script)
    others = st.sampled_from(other_answers(case)) | st.binary(min_size=1, max_size=20)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(script) - 1))
        here = script[at]
        how = draw(st.sampled_from(["insert", "replace", "remove", "cut", "join", "change"]))
        if how == "insert":
            script.insert(at + draw(st.integers(0, 1)), draw(st.sampled_from(INSERTED)))
        elif how == "remove" and len(script) > 1:
            del script[at]
        elif how == "replace":
            script[at] = draw(others)
        elif isinstance(here, bytes) and here != CLOSED:
            where = draw(st.integers(0, len(here) - 1))
            following = script[at + 1] if at + 1 < len(script) else None
            if how == "cut" and where:
                script[at : at + 1] = [here[:where], here[where:]]
            elif how == "change":
                changed = draw(st.integers(0, 255).map(lambda byte: bytes([byte])))
                script[at] = here[:where] + changed + here[where + 1 :]
            elif how == "join" and isinstance(following, bytes) and following != CLOSED:
                script[at : at + 2] = [here + following]
    return case._replace(script=script)


@given(any_case())
def test_whatever_is_answered_is_for_the_machine(case: Case) -> None:
    hold_equal(case)


@given(
    any_case(),
    st.integers(2, 8),
    st.sampled_from([BrokenPipeError(32, "broken"), BlockingIOError()]),
)
def test_what_cannot_be_sent_fails_as_it_does(case: Case, which: int, error: OSError) -> None:
    hold_equal(case._replace(send_fails=(which, error)))


@st.composite
def any_state(draw: st.DrawFn) -> Case:
    """Ordinary answers for a rank that is not where it would expect them."""
    case = draw(ordinary())
    state, record = case.state, case.state.record
    assert record is not None
    changes: dict[str, st.SearchStrategy[Any]] = {
        "silent": st.sampled_from([(0,), (1,)]),
        "look": st.just(True),
        "deaf": st.just(True),
        "missing": st.just((0,)),
        "arrival": st.sampled_from([b"", b"?", b"1:1:1"]),
        "register": st.sampled_from([b"", state.register.replace(b",", b", ")]),
        "progress": st.sampled_from([0, 10**15, 3.0, -1]),
        "rules": st.sampled_from(
            [
                Rules(state.rules.world, heartbeat_interval=100, heartbeat_timeout=150),
                Rules(state.rules.world + 1),
            ]
        ),
        "record": st.sampled_from(
            [
                None,
                replace(record, behind=(Behind(0, 0),)),
                replace(record, admit=(0,)),
                replace(record, iteration=10**15 - 1),
            ]
        ),
    }
    name = draw(st.sampled_from(sorted(changes)))
    state = replace(state, **{name: draw(changes[name])})
    if name == "record" and state.record:
        state = replace(state, register=encode_record(state.record))
    steps = draw(st.sampled_from([case.steps, [-1], [0], [10**15], [10**15 - 1]]))
    soon = draw(st.sampled_from([-5, 0, 1, 50, 99, 100, 200, 60_000]))
    last = draw(st.none() | st.integers(0, record.iteration + 3))
    return case._replace(state=state, steps=steps, soon=soon, iterations=last)


@given(any_state())
def test_whoever_is_not_in_an_ordinary_state_asks_as_the_machine_does(case: Case) -> None:
    hold_equal(case)


@pytest.mark.parametrize("soon", [60_000, 200, 100, 81])
@pytest.mark.parametrize("late", [0.0, 0.05, 0.3])
def test_a_wakeup_is_waited_for_equally_long(soon: int, late: float) -> None:
    """To the millisecond: when it does not come, the rank has to look for who died."""
    state = trained(2, 0, 5, 50)
    said, _ = answers(state, 51, [0, 1], 1)
    case = Case(state, [51], [*said[:2], late, 1e9], soon=soon)
    short, by_steps = run(case, short=True), run(case, short=False)
    assert short == by_steps


# What it is asked in.


@pytest.mark.parametrize("winner", [1, 2])
def test_a_wait_that_is_left_over_is_cancelled_first(winner: int) -> None:
    case = two_advances(winner)
    script = [tcp_wire.WAIT_CANCELED, *case.script]
    hold_equal(case._replace(script=script, waiting=True))


@pytest.mark.timeout(20)  # it would wait for itself
def test_who_shares_a_connection_with_another_thread_is_told() -> None:
    seen = hold_equal(two_advances(2)._replace(busy=True))
    assert "two threads use one connection" in seen.ended[0]


@pytest.mark.parametrize("winner", [1, 2])
def test_an_answer_is_not_waited_for_longer_than_the_store_may_take(winner: int) -> None:
    case = two_advances(winner)
    late = tcp_wire.SLICE * 0.7
    seen = hold_equal(case._replace(script=[late, *case.script], timeout=tcp_wire.SLICE / 2))
    assert seen.ended[0].startswith("StoreLost")


@pytest.mark.parametrize("progress", [51.0, 51.5])
def test_progress_that_is_no_whole_number_is_for_the_machine(progress: float) -> None:
    case = two_advances(2)
    hold_equal(case._replace(steps=[cast(int, progress), 52]))


def store_at(timeout: float = 10.0) -> TcpStore:
    socket = ScriptedSocket(Clock(), [], deque(), (0, OSError()))
    with (
        mock.patch.object(tcp_wire.socket, "create_connection", return_value=socket),
        mock.patch.object(tcp_wire, "_readable", scripted_readable),
    ):
        return TcpStore("host", 1, timeout)


TRAINED = trained(2, 0, 5, 50)
assert TRAINED.record is not None


def decided(**changed: Any) -> RankState:
    """With another decision in the store, and known."""
    record = replace(TRAINED.record, **changed)
    return replace(TRAINED, record=record, register=encode_record(record))


NOT_PREPARED: dict[str, RankState] = {
    "it is not training": replace(TRAINED, phase=READY),
    "nothing is decided": replace(TRAINED, record=None),
    "another was decided": replace(TRAINED, record=replace(TRAINED.record, progress=49)),
    "somebody is not there": replace(TRAINED, rules=Rules(3)),
    "its steps are no whole number": replace(TRAINED, progress=cast(int, 50.0)),
    "it has more steps than can be": replace(TRAINED, progress=HIGHEST + 1),
    "it has less than none": replace(TRAINED, progress=-1),
    "somebody is behind": decided(behind=(Behind(1, 49),)),
    "somebody is admitted": decided(admit=(1,)),
    "no number comes after it": decided(iteration=HIGHEST),
    "it looks again after 99 ms": replace(TRAINED, rules=Rules(2, heartbeat_interval=528)),
}


@pytest.mark.parametrize("why", NOT_PREPARED)
def test_nothing_is_prepared_for_other_states(why: str) -> None:
    later = replace(TRAINED, rules=Rules(2, heartbeat_interval=536))  # it looks after 100 ms
    for state in (TRAINED, later):
        assert prepare(store_at(), JOB, state, None) is not None
    assert prepare(store_at(), JOB, NOT_PREPARED[why], None) is None


def test_nothing_is_prepared_for_other_stores() -> None:
    assert prepare(MemoryStore("ordinary"), JOB, TRAINED, None) is None
    assert prepare(store_at(tcp_wire.SLICE * 0.9), JOB, TRAINED, None) is None
    assert prepare(store_at(tcp_wire.SLICE), JOB, TRAINED, None) is not None


@pytest.mark.parametrize("why", ["it is not training", "nothing is decided"])
def test_nothing_is_sent_for_who_came_to_another_state(why: str) -> None:
    store = store_at()
    ordinary = prepare(store, JOB, TRAINED, None)
    assert ordinary is not None
    assert store.connection is not None
    sent = cast(ScriptedSocket, store.connection._socket)
    before = sent.sent
    assert ordinary.advance(NOT_PREPARED[why], 51, 0, deque()) == ()
    assert sent.sent == before
