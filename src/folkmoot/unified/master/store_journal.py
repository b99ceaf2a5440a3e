"""A job's journal in a shared store (`authority.store.kv`): it outlives the master's machine.

Records are keys of their own; one key, `head`, says which of them count. It changes by
compare-and-set from exactly what this holder wrote last, so whoever claims the next epoch fences
all before it off, at their next record. There is no lock between machines: who comes later holds
the job. What cannot be read is an error, as in `host.journal`.
"""

import errno
import secrets
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from folkmoot.authority.store.kv import MAX_VALUE, StoreError
from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.host.journal import Fenced, JournalError

HEAD = "head"
PART = MAX_VALUE - 4
T = TypeVar("T")


class Head(msgspec.Struct, frozen=True, array_like=True):
    """Who holds the journal, and where its records are: so many, in the log of this name."""

    epoch: int
    holder: str  # so that no two holders ever write the same head
    log: str = ""
    count: int = 0


class StoreJournal:
    """For one thread at a time. Raises `OSError` when the store does not answer."""

    def __init__(self, url: str, job: str) -> None:
        self.path = url
        self._store = _asked(lambda: open_store(url, f"jobs/{job}"))
        self._logs = 0
        #: Bytes in use, and how many it began with.
        self.size = self.begun = 0
        try:
            self._before = _asked(lambda: self._store.get(HEAD)) or b""
            found = self._decoded(self._before)
            self.epoch = found.epoch + 1
            # Claimed before it is read: what an older holder still acts on is there to be read.
            self._head = Head(self.epoch, secrets.token_hex(8), found.log, found.count)
            self._move(self._head)
            self.records = [self._read(found.log, number) for number in range(found.count)]
        except BaseException:
            self.close()
            raise

    def begin(self, *records: bytes) -> None:
        """Start a new log with these records in place of all before."""
        old = self._head
        self._logs += 1
        log = f"{self.epoch}-{self._logs}"
        for number, record in enumerate(records):
            self._write(log, number, record)
        self._move(Head(self.epoch, old.holder, log, len(records)))
        self.size = self.begun = sum(map(len, records))
        self.records = []
        self._forget(old)

    def append(self, record: bytes) -> None:
        """Add one record; in the store on return. Raises `Fenced` when it counts for nothing."""
        head = self._head
        self._write(head.log, head.count, record)
        self._move(Head(head.epoch, head.holder, head.log, head.count + 1))
        self.size += len(record)

    def close(self) -> None:
        self._store.close()

    def _move(self, head: Head) -> None:
        desired = msgspec.msgpack.encode(head)
        now = _asked(lambda: self._store.compare_set(HEAD, self._before, desired))
        if now != desired:
            raise Fenced(f"the job in {self.path} was taken over by another process: end this one")
        self._before, self._head = desired, head

    def _write(self, log: str, number: int, record: bytes) -> None:
        parts = [record[at : at + PART] for at in range(0, len(record), PART)] or [b""]
        for k, part in enumerate(parts):
            key, value = f"{log}/{number}/{k}", len(parts).to_bytes(4, "little") + part
            _asked(partial(self._store.set, key, value))

    def _read(self, log: str, number: int) -> bytes:
        first = self._part(log, number, 0)
        rest = [self._part(log, number, k) for k in range(1, int.from_bytes(first[:4], "little"))]
        return b"".join(part[4:] for part in (first, *rest))

    def _part(self, log: str, number: int, k: int) -> bytes:
        found = _asked(lambda: self._store.get(f"{log}/{number}/{k}"))
        if found is None:
            raise JournalError(
                f"the job's state in {self.path} misses record {number}: nothing was changed."
                " Restore the store from a copy, or take another name for the job"
            )
        return found

    def _forget(self, old: Head) -> None:
        """The first part of each tells nothing without the head; larger ones are rare."""
        keys = [f"{old.log}/{number}/0" for number in range(old.count)]
        if keys:
            _asked(lambda: self._store.delete_many(keys))

    def _decoded(self, value: bytes) -> Head:
        try:
            return msgspec.msgpack.decode(value, type=Head) if value else Head(0, "")
        except UNREADABLE as error:
            raise JournalError(f"the job's state in {self.path} cannot be read: {error}") from None


def _asked(work: Callable[[], T]) -> T:
    try:
        return work()
    except StoreError as error:
        raise OSError(errno.EIO, f"the store of the job's state: {error}") from error
