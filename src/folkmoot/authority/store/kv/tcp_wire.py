"""What a torch TCPStore server understands, and one socket to it on which nothing waits for ever.

torch's own client has no deadline: while its server is stopped or unreachable, `check`, `add`,
`compare_set`, even connecting and the end of a timed `wait` block for good (torch 2.13). It also
writes two warnings to stderr for each `wait` that times out. The protocol is small, and torch's own
(tested with 2.13): a byte for the request, its fields, integers as this machine has them, strings
after their length. Requests of one connection are carried out in order, so several may be sent
at once.
"""

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Sequence

from folkmoot.authority.store.kv import MAX_VALUE

_VALIDATE, _SET, _COMPARE_SET, _GET, _ADD, _CHECK, _WAIT = 0, 1, 2, 3, 4, 5, 6
_DELETE, _APPEND, _MULTI_GET, _CANCEL_WAIT, _PING = 8, 9, 10, 12, 13
_SIZE, _NUMBER = struct.Struct("=Q"), struct.Struct("=q")
# A request with a key and its length; with a list of keys, of which there is one.
_KEYED, _ONE_KEY = struct.Struct("=BQ"), struct.Struct("=BQQ")
_MAGIC = struct.pack("=BI", _VALIDATE, 0x3C85F7CE)
# Answers of one byte.
STOP_WAITING, WAIT_CANCELED = b"\0", b"\1"
THERE = b"\0"  # to a CHECK
# How long the kernel waits at once, in seconds: setting it costs as much as a request.
SLICE = 0.1
MOSTLY = 8192  # bytes that are enough for most answers
# What we "expect" of a key in order to read it: see `read`.
NO_VALUE = b"folkmoot: no value " + os.urandom(16)
_NO_VALUES = 2 * (_SIZE.pack(len(NO_VALUE)) + NO_VALUE)


class TooLong(Exception):
    """The server holds a value larger than any of ours."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class NotAStore(ConnectionError):
    """Somebody else listens there."""


def _keyed(request: int, key: bytes) -> bytes:
    # The slash as torch's client does, so that both see the same keys.
    return _KEYED.pack(request, len(key) + 1) + b"/" + key


def _all_keyed(request: int, keys: Sequence[bytes]) -> bytes:
    names = b"".join(_SIZE.pack(len(key) + 1) + b"/" + key for key in keys)
    return _KEYED.pack(request, len(keys)) + names


def _payload(value: bytes) -> bytes:
    return _SIZE.pack(len(value)) + value


def compare_set(key: bytes, expected: bytes, desired: bytes) -> bytes:
    return _keyed(_COMPARE_SET, key) + _payload(expected) + _payload(desired)


def read(key: bytes) -> bytes:
    """The server's own GET drops the connection when the key is missing.

    A compare_set that expects what nobody stores changes nothing; it is answered with the value,
    or, when there is none, with what was expected: one trip, and no moment between look and read.
    """
    return _keyed(_COMPARE_SET, key) + _NO_VALUES


def get(key: bytes) -> bytes:
    """Of a key that is there."""
    return _keyed(_GET, key)


def check_all(keys: Sequence[bytes]) -> bytes:
    """Whether they are there, all of them."""
    return _all_keyed(_CHECK, keys)


def get_all(keys: Sequence[bytes]) -> bytes:
    """Of keys that are there: one request, and one answer, which has the values in order."""
    return _all_keyed(_MULTI_GET, keys)


def set_unanswered(key: bytes, value: bytes) -> bytes:
    """What is sent behind it is."""
    return _keyed(_SET, key) + _payload(value)


def set_acknowledged(key: bytes, value: bytes) -> bytes:
    """SET is not answered; the CHECK behind it is."""
    return set_unanswered(key, value) + check(key)


def append(key: bytes, value: bytes) -> bytes:
    """Is not answered; what is sent behind it is."""
    return _keyed(_APPEND, key) + _payload(value)


def check(key: bytes) -> bytes:
    return _ONE_KEY.pack(_CHECK, 1, len(key) + 1) + b"/" + key


def add(key: bytes, amount: int) -> bytes:
    return _keyed(_ADD, key) + _NUMBER.pack(amount)


def delete(key: bytes) -> bytes:
    return _keyed(_DELETE, key)


def wait(key: bytes) -> bytes:
    return _ONE_KEY.pack(_WAIT, 1, len(key) + 1) + b"/" + key


def cancel_wait() -> bytes:
    return bytes([_CANCEL_WAIT])


def _timeval(seconds: float) -> bytes:
    whole, part = divmod(max(round(seconds * 1e6), 1), 1_000_000)
    return struct.pack("@ll", whole, part)


def _readable(of: socket.socket, seconds: float) -> bool:
    """Within so many seconds: a socket's own time-out is late by up to two of the kernel's ticks,
    8 ms where there are 250 in a second."""
    poll = select.poll()
    poll.register(of, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Connection:
    """A socket to a TCPStore server. Raises OSError; after one the answers are out of step."""

    def __init__(self, host: str, port: int, timeout: float) -> None:
        self._timeout = timeout
        self._socket = socket.create_connection((host, port), timeout)
        self._received, self._taken = b"", 0  # and how much of it
        self._sent = b""  # by somebody else: see `go_on_after`
        self._failed: BaseException | None = None
        try:
            # The kernel keeps the time: Python would ask twice for each call, and set it each time.
            self._socket.settimeout(None)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(timeout))
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(SLICE))
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nonce = os.urandom(4)
            self.send(_MAGIC + bytes([_PING]) + nonce)
            if self.take(4) != nonce:
                raise NotAStore("what listens there is not a torch TCPStore")
        except BaseException:
            self.close()
            raise

    def lend(self) -> socket.socket | None:
        """The socket, for somebody else to send and receive on; it waits a `SLICE` at once.

        None if some of the answers was not taken.
        """
        return self._socket if self._taken == len(self._received) else None

    def go_on_after(self, sent: bytes, received: bytes, failed: BaseException | None) -> None:
        """Go on where somebody else stopped who had the socket.

        The next requests are those that were `sent`, and are not sent again; their answers begin
        with what was `received`. What `failed` fails where we come to it: a request that was not
        sent, or bytes that did not come, for which a `SLICE` of the time is over then.
        """
        self._sent, self._received, self._taken, self._failed = sent, received, 0, failed

    def send(self, requests: bytes) -> None:
        if self._sent:
            if not self._sent.startswith(requests):
                raise ConnectionAbortedError("something else was sent")
            self._sent = self._sent[len(requests) :]
            return
        try:
            if self._failed is not None:
                raise self._failed
            self._socket.sendall(requests)
        except BlockingIOError as error:
            raise TimeoutError("it takes nothing") from error

    def take(self, count: int, seconds: float | None = None) -> bytes:
        """The next bytes of the answer, however long it takes to come, up to a time."""
        at, end = self._taken, self._taken + count
        if len(self._received) < end:
            self._receive(count, self._timeout if seconds is None else max(seconds, 1e-4))
            at, end = 0, count
        self._taken = end
        return self._received[at:end]

    def _receive(self, count: int, seconds: float) -> None:
        """Have at least `count` bytes that were not taken, and forget those that were."""
        self._received, self._taken = self._received[self._taken :], 0
        if self._failed is not None:
            failed, self._failed = self._failed, None
            if not isinstance(failed, BlockingIOError):
                raise failed
            seconds -= SLICE
        deadline, left = time.monotonic() + seconds, seconds
        while (missing := count - len(self._received)) > 0:
            if left <= 0:
                raise TimeoutError("no answer came")
            if left < SLICE and not _readable(self._socket, left):
                raise TimeoutError("no answer came")
            try:
                more = self._socket.recv(max(MOSTLY, missing))
            except BlockingIOError:
                left = deadline - time.monotonic()
                continue
            if not more:
                raise ConnectionResetError("it closed the connection")
            self._received += more
            if len(more) < missing:
                left = deadline - time.monotonic()

    def take_number(self) -> int:
        number: int = _NUMBER.unpack(self.take(8))[0]
        return number

    def take_value(self) -> bytes:
        at = self._taken
        if len(self._received) < at + 8:
            self._receive(8, self._timeout)
            at = 0
        size: int = _SIZE.unpack_from(self._received, at)[0]
        if size > MAX_VALUE:
            raise TooLong(size)
        self._taken = at + 8
        return self.take(size)

    def close(self) -> None:
        """Also wakes a thread that waits on it."""
        with contextlib.suppress(OSError):  # it was not connected any more
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
