"""The ordinary advance: everybody goes on as before, and nobody is silent.

Nearly all advances are so, and with many ranks on few cores they cost the functions that they pass
through (decision 164). So this is one short way from the loop to a TCPStore's socket and back.

It decides nothing. It sends the bytes of the machine's requests, with the new numbers in what was
prepared, and compares the answers with those of an ordinary advance. With the first byte that is
another, an answer that takes longer than a moment, an error, an interrupt or news of the
heartbeats it stops where it is, and the loop goes on there: it makes its own requests, finds that
these are sent already, and reads the answers from their beginning.
"""

from collections import deque
from socket import socket as Socket
from struct import Struct

from msgspec.structs import replace

from folkmoot.authority.store.kv import Store
from folkmoot.authority.store.kv import tcp_wire as wire
from folkmoot.authority.store.kv.tcp import TcpStore
from folkmoot.core.iteration import Record, apply, keys
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.machine import MOMENT, TRAINING
from folkmoot.core.iteration.record import HEAD, HIGHEST, NOTE_END, encode_record, members_text
from folkmoot.core.iteration.state import RankState
from folkmoot.elastic.requests import Values

# The socket waits as long at once as the machine does for others to go on as before.
assert round(1000 * wire.SLICE) == MOMENT
Events = deque[m.Silent | m.Beaten]
_pack_size, _size_at = Struct("=Q").pack, Struct("=Q").unpack_from


class _Unusual(Exception):
    """Anything but an ordinary advance."""


def prepare(
    store: Store, job: str, state: RankState, iterations: int | None
) -> "OrdinaryAdvance | None":
    """For the next advances, up to the last of `iterations`, if they can be ordinary ones."""
    record, progress = state.record, state.progress
    if not isinstance(store, TcpStore) or store.timeout < wire.SLICE:
        return None
    if record is None or state.phase is not TRAINING or type(progress) is not int:
        return None
    if len(record.members) < state.rules.world or record.behind or record.admit:
        return None
    if state.register != encode_record(record):
        return None
    asked = _arrival(state)
    if asked.ms < MOMENT or not 0 <= progress <= HIGHEST or record.iteration >= HIGHEST:
        return None
    end = HIGHEST if iterations is None else iterations - 1
    return OrdinaryAdvance(store, job, state, record, asked, end)


class OrdinaryAdvance:
    """Prepared for the members of one decision, and for numbers with as many digits as now."""

    def __init__(
        self,
        store: TcpStore,
        job: str,
        state: RankState,
        record: Record,
        asked: m.Arrive,
        end: int,
    ) -> None:
        last, progress, target = record.iteration, state.progress, record.iteration + 1
        self._store, self._world = store, state.rules.world
        self._lasts, self._targets, self._steps = map(_as_long, (last, target, progress))
        self._lasts = range(self._lasts.start, min(self._lasts.stop, end))
        self._lengths = len(state.arrival), len(state.register)

        # What the answers are compared with.
        self._members = members_text(state.register)
        self._notes = {b"", *(b"[%d,%d" % (x.rank, x.incarnation) for x in record.members)}
        self._mine_size = _pack_size(len(asked.desired))
        self._most = len(state.register) + self._world * len(asked.note) + 256  # of an answer

        # What is sent, with gaps for the numbers.
        names = asked.key, asked.arrived, asked.wakeup, keys.ready(target), keys.CONSENSUS
        mine, listed, as_before, ready, register = (f"{job}/{name}".encode() for name in names)
        note = b"[%d,%d,%%d]," % (state.rank, state.incarnation)
        on_list, wakeup = _key_gap(listed, target), _key_gap(as_before, target)
        other_wakeup = _key_gap(ready, target)
        self._mine = b"%%d:%d:%%d" % state.incarnation
        self._arrive = _with_gaps(
            wire.compare_set(mine, state.arrival, asked.desired)
            + (wire.append(listed, asked.note) + wire.read(listed) + wire.wait(as_before)),
            *((state.arrival, b"%b"), (asked.desired, self._mine)),
            *(on_list, (asked.note, note), on_list, wakeup),
        )
        proposal = HEAD % (target, progress) + self._members
        self._propose = _with_gaps(
            wire.cancel_wait() + wire.compare_set(register, state.register, proposal),
            *((state.register, b"%b"), (proposal, b"%b")),
        )
        self._wake = _with_gaps(
            wire.set_unanswered(as_before, m.WOKEN) + wire.set_acknowledged(ready, m.WOKEN),
            *(wakeup, other_wakeup, other_wakeup),
        )

        self.won = False  # whether the last of them was proposed by this rank
        # What was answered, and of the open request: what was sent and received.
        self._answered: tuple[Values, ...] = ()
        self._sent = self._got = b""

    def advance(
        self, state: RankState, progress: int, now: int, events: Events
    ) -> RankState | tuple[Values, ...]:
        """The state after it; or what the machine has to be told before the loop goes on.

        `progress` is that of the rank now, `now` and `events` are what the loop has.
        """
        store, record, connection = self._store, state.record, self._store.connection
        if (
            (connection is None or store.waiting or (socket := connection.lend()) is None)
            or (record is None or state.phase is not TRAINING or state.silent)
            or (record.iteration not in self._lasts or record.iteration + 1 not in self._targets)
            or (type(progress) is not int or progress not in self._steps)
            or (progress < record.progress)
            or (len(state.arrival), len(state.register)) != self._lengths
            or not store.busy.acquire(blocking=False)
        ):
            return ()
        self._answered, self._sent, self._got = (), b"", b""
        failed: BaseException | None = None
        try:
            try:
                return self._go(socket, state, record, progress, now, events)
            except _Unusual:
                pass
            except OSError as error:
                failed = error
            except BaseException as error:
                # An interrupt, as if it had come with the first byte of the open request.
                self._sent, failed = b"", error
            connection.go_on_after(self._sent, self._got, failed)
            return self._answered
        finally:
            store.busy.release()

    def _go(
        self,
        socket: Socket,
        state: RankState,
        record: Record,
        progress: int,
        now: int,
        events: Events,
    ) -> RankState:
        last, target = record.iteration, record.iteration + 1
        mine, register = self._mine % (last, progress), HEAD % (target, progress) + self._members
        request = self._arrive % (state.arrival, last, progress, target, progress, target, target)
        socket.sendall(request)
        self._sent = request
        # That it has arrived, and who else has.
        begin = self._mine_size + mine
        at = len(begin) + 8
        got = self._got = socket.recv(self._most)
        if len(got) < at and begin.startswith(got[: at - 8]):
            got = self._got = got + socket.recv(self._most)
        if len(got) < at or not got.startswith(begin):
            raise _Unusual
        end = at + _size_at(got, at - 8)[0]
        listed = got[at:end]
        if listed.count(NOTE_END) < self._world:
            # The wakeup: everybody goes on as before.
            if len(got) == end:
                got = self._got = got + socket.recv(1)
            if got[end:] != wire.STOP_WAITING or events:
                raise _Unusual
            self.won = False
        else:
            notes = listed.split(b",%d" % progress + NOTE_END)
            if len(got) != end or len(notes) != len(self._notes) or set(notes) != self._notes:
                raise _Unusual
            self._decide(socket, state.register, register, target, (mine, listed), events)
            self.won = True
        return replace(
            state,
            arrival=mine,
            register=register,
            record=Record(target, progress, record.members, (), ()),
            target=target,
            progress=progress,
            since=now,
            deaf=False,
            missing=(),
        )

    def _decide(
        self,
        socket: Socket,
        before: bytes,
        proposal: bytes,
        target: int,
        answered: Values,
        events: Events,
    ) -> None:
        """Everybody is there."""
        if events:
            raise _Unusual
        # From here on the arrival is answered, and the server waits for what this rank does not.
        self._answered, self._sent, self._got = (answered,), b"", b""
        self._store.waiting = True
        request = self._propose % (before, proposal)
        socket.sendall(request)
        self._sent = request
        expected = wire.WAIT_CANCELED + _sized(proposal)
        for _ in range(2):  # as many answers
            self._got += socket.recv(self._most)
            if len(self._got) >= len(expected) or not expected.startswith(self._got):
                break
        if self._got != expected:
            raise _Unusual
        wake = self._wake % (target, target, target)
        socket.sendall(wake)
        self._sent = request + wake
        self._got += socket.recv(1)
        if self._got != expected + wire.THERE or events:
            raise _Unusual
        self._store.waiting = False


def _arrival(state: RankState) -> m.Arrive:
    """What the machine asks for when the rank is done with its iteration."""
    effects = apply(state, m.Finished(state.progress), 0, 0).effects
    return next(effect for effect in effects if isinstance(effect, m.Arrive))


def _as_long(number: int) -> range:
    """Numbers with as many digits."""
    most = 10 ** len(str(number))
    return range(most // 10 if number > 9 else 0, most)


def _sized(text: bytes) -> bytes:
    """As it lies on the wire, behind its size."""
    return _pack_size(len(text)) + text


def _key_gap(key: bytes, number: int) -> tuple[bytes, bytes]:
    """A key in which that number stands last, as it lies on the wire, and with a gap there."""
    before, _, behind = key.rpartition(b"%d" % number)
    return b"/" + key, _plain(b"/" + before) + b"%d" + _plain(behind)


def _with_gaps(request: bytes, *gaps: tuple[bytes, bytes]) -> bytes:
    """The request with each of these texts, in their order, replaced by one that has gaps."""
    made = b""
    for text, gap in gaps:
        before, found, request = request.partition(_sized(text))
        made += _plain(before + found[:8]) + gap
    return made + _plain(request)


def _plain(text: bytes) -> bytes:
    """To stand in a pattern for itself."""
    return text.replace(b"%", b"%%")
