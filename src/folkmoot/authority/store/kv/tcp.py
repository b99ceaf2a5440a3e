"""A torch TCPStore: one server process that keeps everything in memory.

Every operation is answered, `set` and `append` too, or it raises within `timeout` seconds.

A connection that breaks is not the end: the next operation makes a new one, in one attempt, so that
a server that is gone is known at once. Reads are repeated once on the new connection. Writes are
not, as nobody can know whether the lost one happened: `StoreGone` tells the caller, who reads what
is there. A server that was started again is empty; that shows in what the caller reads.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from folkmoot.authority.store.kv import StoreError, StoreGone, Wakeup, WrongType, in_steps
from folkmoot.authority.store.kv import tcp_wire as wire
from folkmoot.authority.store.kv.limits import check_key, check_value, sum_at, too_long_there
from folkmoot.host.clock import backoff

T = TypeVar("T")
# The most keys asked for at once: neither side's buffers may fill while both are sending.
BATCH = 256
# Up to so many are read one by one, in one trip; more as one request, in two.
FEW = 4


class TcpStore:
    """One connection to the server at host:port."""

    def __init__(
        self, host: str, port: int, timeout: float, patience: float = 0.0, *, met: bool = False
    ) -> None:
        self._host, self._port, self.timeout = host, port, timeout
        self._met = met  # whether there was a store at this address before
        self._closed = False
        self.busy = threading.Lock()
        self.waiting = False  # whether the server waits for something we no longer do
        self.connection: wire.Connection | None = self._connect_patiently(patience)
        self._met = True

    def get(self, key: str) -> bytes | None:
        name = check_key(key)
        return self._read(key, wire.read(name), _value_or_none)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for at in range(0, len(keys), BATCH):
            found += self._get_batch(keys[at : at + BATCH])
        return found

    def _get_batch(self, keys: Sequence[str]) -> list[bytes | None]:
        """Many as one request, if they are there: one by one, each costs the server an answer.

        An older server ends the connection when one goes between look and read; then one by one.
        """
        named, names = f"one of {keys[0]} to {keys[-1]}", list(map(check_key, keys))
        answer = partial(_values, len(names))
        if len(names) > FEW and self._read(named, wire.check_all(names), _is_there):
            try:
                return self._write(named, wire.get_all(names), answer)
            except StoreGone as gone:
                if not isinstance(gone.__cause__, ConnectionError):
                    raise
        return self._read(named, b"".join(map(wire.read, names)), answer)

    def set(self, key: str, value: bytes) -> None:
        check_value(key, value)
        self._write(key, wire.set_acknowledged(check_key(key), value), _acknowledged)

    def add(self, key: str, amount: int) -> int:
        sum_at(key, None, amount)
        name = check_key(key)
        try:
            standing, total = self._write(key, wire.read(name) + wire.add(name, amount), _added)
        except StoreGone:
            # The server drops the connection of who adds to what is no number.
            sum_at(key, self.get(key), amount)
            raise
        try:
            sum_at(key, standing, amount)
        except WrongType:
            # It took " 7x" for 7, or went beyond 64 bits and began anew: as it was.
            self.compare_set(key, b"%d" % total, standing or b"")
            raise
        return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        check_value(key, desired)
        request = wire.compare_set(check_key(key), expected, desired)
        after = self._write(key, request, wire.Connection.take_value)
        return self._compared(key, expected, desired, after)

    def compare_set_then_set(
        self, key: str, expected: bytes, desired: bytes, others: Sequence[str], value: bytes
    ) -> bytes | None:
        found = self.compare_set(key, expected, desired)
        if found == desired:
            *names, last = map(check_key, others)
            sets = b"".join(wire.set_unanswered(name, value) for name in names)
            self._write(key, sets + wire.set_acknowledged(last, value), _acknowledged)
        return found

    def compare_set_and_append(
        self,
        key: str,
        expected: bytes,
        desired: bytes,
        list_key: str,
        note: bytes,
        wakeup: Wakeup | None = None,
    ) -> tuple[bytes | None, ...]:
        """The server is asked for the wait along with the rest, and told if it need not be."""
        check_value(key, desired)
        check_value(list_key, note)
        name = check_key(list_key)
        request = wire.compare_set(check_key(key), expected, desired)
        request += wire.append(name, note) + wire.read(name)
        if wakeup is None:
            after, notes = self._write(list_key, request, _compared_and_read)
            return self._compared(key, expected, desired, after), notes
        request += wire.wait(check_key(wakeup.key))
        behind = wire.read(check_key(wakeup.then)) if wakeup.then else b""

        def answer(connection: wire.Connection) -> tuple[bytes | None, ...]:
            after, notes = _compared_and_read(connection)
            if after == desired != expected and wakeup.worth(notes):
                _, value = _await_and_read(wakeup.seconds, behind, connection)
                return after, notes, value
            self.waiting = True
            return after, notes

        found, *more = self._write(list_key, request, answer)
        return self._compared(key, expected, desired, found or b""), *more

    def _compared(self, key: str, expected: bytes, desired: bytes, after: bytes) -> bytes | None:
        if after == desired != expected:
            return after
        if after == expected:
            # There is none, unless both are the same: the server says the same for both.
            return self.get(key) if expected == desired else None
        return after or None

    def move(self, key: str, expected: bytes, desired: bytes, before: str, after: str) -> bool:
        return in_steps.move(self, key, expected, desired, before, after)

    def add_and_create(
        self, key: str, near: int, made: Callable[[int], tuple[str, bytes]]
    ) -> int | None:
        return None

    def append(self, key: str, value: bytes) -> None:
        check_value(key, value)
        check_value(key, (self.get(key) or b"") + value)
        name = check_key(key)
        self._write(key, wire.append(name, value) + wire.check(name), _acknowledged)

    def wait(self, key: str, seconds: float, then: str = "") -> bytes | None:
        name = check_key(key)
        if then:
            return self._wait_for_wakeup(key, seconds, then)
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            woken = self._read(key, wire.wait(name), partial(_await, left))
            if woken and (value := self._get_or_break(key)) is not None:
                return value
            # It timed out, or was deleted as soon as it was set, or somebody looked in vain.
        return self._get_if_there(key)

    def _wait_for_wakeup(self, key: str, seconds: float, then: str) -> bytes | None:
        if seconds > 0:
            answer = partial(_await_and_read, seconds, wire.read(check_key(then)))
            woken, value = self._read(key, wire.wait(key.encode()), answer)
            if woken:
                return value
        return self.get(then) if self._get_if_there(key) else None

    def _get_or_break(self, key: str) -> bytes | None:
        """Of a key that must be there: else the server ends the connection, and we make another."""
        try:
            return self._write(key, wire.get(check_key(key)), wire.Connection.take_value) or None
        except StoreGone as gone:
            if not isinstance(gone.__cause__, ConnectionError):
                raise
            return self._get_if_there(key)

    def _get_if_there(self, key: str) -> bytes | None:
        """As `get`, which wakes all who wait for the key: many would wake each other for ever."""
        there = self._read(key, wire.check(check_key(key)), _is_there)
        return self.get(key) if there else None

    def watch(self, key: str, numbered: str) -> None:
        return None

    def delete(self, key: str) -> bool:
        request = wire.delete(check_key(key))
        return self._write(key, request, wire.Connection.take_number) > 0

    def delete_many(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), BATCH):
            batch = keys[at : at + BATCH]
            requests = b"".join(wire.delete(check_key(key)) for key in batch)
            self._write(batch[0], requests, partial(_numbers, len(batch)))

    def clone(self) -> "TcpStore":
        return TcpStore(self._host, self._port, self.timeout, met=True)

    def close(self) -> None:
        """Ends what another thread waits for on this connection, too."""
        self._closed = True
        if self.connection is not None:
            self.connection.close()

    def _read(self, key: str, request: bytes, answer: Callable[[wire.Connection], T]) -> T:
        """Ask for what changes nothing: again if a connection that we had before is broken."""
        old = self.connection
        try:
            return self._write(key, request, answer)
        except StoreGone as gone:
            if old is None or isinstance(gone.__cause__, TimeoutError):
                raise
            return self._write(key, request, answer)

    def _write(self, key: str, request: bytes, answer: Callable[[wire.Connection], T]) -> T:
        if not self.busy.acquire(blocking=False):
            raise StoreError("two threads use one connection to the store; give each its clone")
        try:
            if self.connection is None or self._closed:
                self.connection = self._connect()
            if not self.waiting:
                self.connection.send(request)
            else:
                self.connection.send(wire.cancel_wait() + request)
                _wait_cancelled(self.connection)
                self.waiting = False
            return answer(self.connection)
        except OSError as error:
            self._drop()
            raise self._gone(error) from error
        except wire.TooLong as error:
            self._drop()
            raise too_long_there(key, error.size) from None
        except BaseException:  # interrupted: an answer may still be on its way
            self._drop()
            raise
        finally:
            self.busy.release()

    def _drop(self) -> None:
        self.waiting = False
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _connect(self) -> wire.Connection:
        if self._closed:
            raise StoreError(f"this connection to {self._url} is closed; open another")
        return wire.Connection(self._host, self._port, self.timeout)

    def _connect_patiently(self, patience: float) -> wire.Connection:
        """The server may still be starting, and hundreds may connect at once: with jitter."""
        deadline = time.monotonic() + patience
        for delay in backoff(0.02 * random.uniform(0.5, 1.5), 2.0):
            try:
                return self._connect()
            except wire.NotAStore as error:
                raise self._gone(error) from error
            except OSError as error:
                if time.monotonic() + delay > deadline:
                    raise self._gone(error) from error
            time.sleep(delay)
        raise AssertionError("back-off never ends")

    @property
    def _url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"tcp://{host}:{self._port}"

    def _gone(self, error: OSError) -> StoreGone:
        if isinstance(error, wire.NotAStore):
            return StoreGone(f"{self._url}: {error}; check host and port")
        if isinstance(error, TimeoutError):
            return StoreGone(
                f"the store at {self._url} did not answer for {self.timeout:g} s; "
                "it hangs, is overloaded or cannot be reached: look at its process and the network"
            )
        if not self._met:
            return StoreGone(
                f"no store answers at {self._url} ({error.strerror or error}): start one there with"
                " `folkmoot store serve`, or mend the url"
            )
        return StoreGone(
            f"the store at {self._url} is gone ({error.strerror or error}); it keeps nothing on "
            "disk: start it again with `folkmoot store serve`, then every process of the job"
        )


def _value_or_none(answer: wire.Connection) -> bytes | None:
    value = answer.take_value()
    return None if value == wire.NO_VALUE else value or None


def _acknowledged(answer: wire.Connection) -> None:
    answer.take(1)


def _is_there(answer: wire.Connection) -> bool:
    return answer.take(1) == wire.THERE


def _added(answer: wire.Connection) -> tuple[bytes | None, int]:
    """What there was, and the sum."""
    return _value_or_none(answer), answer.take_number()


def _compared_and_read(answer: wire.Connection) -> tuple[bytes, bytes]:
    return answer.take_value(), _value_or_none(answer) or b""


def _numbers(count: int, answer: wire.Connection) -> list[int]:
    return [answer.take_number() for _ in range(count)]


def _values(count: int, answer: wire.Connection) -> list[bytes | None]:
    return [_value_or_none(answer) for _ in range(count)]


def _await(seconds: float, answer: wire.Connection) -> bool:
    """Whether the key came before time was up; nothing of it is left on the connection."""
    try:
        answer.take(1, seconds)
        return True
    except TimeoutError:
        answer.send(wire.cancel_wait())
        _wait_cancelled(answer)
        return False


def _await_and_read(
    seconds: float, behind: bytes, answer: wire.Connection
) -> tuple[bool, bytes | None]:
    """Whether the key came, and then what is read behind it, if anything is."""
    if not _await(seconds, answer):
        return False, None
    if not behind:
        return True, b""
    answer.send(behind)
    return True, _value_or_none(answer)


def _wait_cancelled(answer: wire.Connection) -> None:
    # The key may have come before the server read this.
    if answer.take(1) == wire.STOP_WAITING:
        answer.take(1)
