"""A job's journal in a bucket (`exchange.bucket`): it outlives the master's machine.

Entries are objects, numbered without a gap. A bucket lets one writer create an object, so who
writes number n has it: a new holder claims the job by the next number, and the old one, which finds
its next number taken, is fenced off. The epoch of a holder is the number of its claim. What cannot
be read, or is missing, is an error, as in `host.journal`.
"""

import errno
import secrets
from collections.abc import Callable
from typing import TypeVar

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.exchange.bucket import AlreadyExists, Bucket, BucketError, Missing
from folkmoot.host.journal import Fenced, JournalError

# Bytes of one entry: a state with all that a job knows, and much more.
LIMIT = 1 << 30
# Claims that may be lost to others who claim at the same time.
TRIES = 100
T = TypeVar("T")


class JournalEntry(msgspec.Struct, frozen=True, array_like=True):
    """What a holder wrote: its claim, which has no records; a beginning, or one record more."""

    holder: str
    begins: bool = False
    records: tuple[bytes, ...] = ()


class BucketJournal:
    """For one thread at a time. Raises `OSError` when the bucket does not answer."""

    def __init__(self, url: str, job: str) -> None:
        self.path = url
        self._bucket, self._folder = _asked(lambda: Bucket(url)), f"jobs/{job}"
        self._holder = secrets.token_hex(8)
        #: Bytes in use, and how many it began with.
        self.size = self.begun = 0
        # Claimed before it is read: what an older holder still acts on is there to be read.
        numbers = self._claim()
        self.epoch = self._last = numbers[-1]
        self.records = self._read(numbers)

    def begin(self, *records: bytes) -> None:
        """Put these records in place of all before."""
        self._write(JournalEntry(self._holder, True, records))
        self.size = self.begun = sum(map(len, records))
        self.records = []
        for number in self._numbers():
            if number < self._last:
                _asked(lambda number=number: self._bucket.delete(self._key(number)))  # type: ignore[misc]

    def append(self, record: bytes) -> None:
        """Add one record; in the bucket on return. Raises `Fenced` when it counts for nothing."""
        self._write(JournalEntry(self._holder, False, (record,)))
        self.size += len(record)

    def close(self) -> None:
        """Nothing is held but the claim."""

    def _claim(self) -> list[int]:
        """Take the next number; the numbers that are there, with it."""
        for _ in range(TRIES):
            numbers = self._numbers()
            number = numbers[-1] + 1 if numbers else 1
            if self._create(number, JournalEntry(self._holder)):
                return [*numbers, number]
        raise JournalError(f"others claim the job in {self.path} again and again: stop them first")

    def _write(self, entry: JournalEntry) -> None:
        if not self._create(self._last + 1, entry):
            raise Fenced(f"the job in {self.path} was taken over by another process: end this one")
        self._last += 1

    def _create(self, number: int, entry: JournalEntry) -> bool:
        """Whether the number is ours. An answer may be lost, and the request be sent again."""
        body = msgspec.msgpack.encode(entry)
        try:
            _asked(lambda: self._bucket.put(self._key(number), body, create=True))
        except AlreadyExists:
            try:
                return self._entry(number).holder == self._holder
            except Missing:  # another's, who has begun anew meanwhile
                return False
        return True

    def _read(self, numbers: list[int]) -> list[bytes]:
        """The records from the last beginning on."""
        records: list[bytes] = []
        expected = numbers[-1]
        for number in reversed(numbers):
            if number != expected:
                break
            try:
                entry = self._entry(number)
            except Missing:
                break
            records = [*entry.records, *records]
            if entry.begins:
                return records
            expected = number - 1
        if records or expected:
            raise JournalError(
                f"the job's state in {self.path} misses entry {expected}: nothing was changed."
                " Restore the bucket from a copy, or take another name for the job"
            )
        return []

    def _entry(self, number: int) -> JournalEntry:
        body = _asked(lambda: self._bucket.get(self._key(number), LIMIT))
        try:
            return msgspec.msgpack.decode(body, type=JournalEntry)
        except UNREADABLE as error:
            raise JournalError(
                f"the job's state in {self.path} cannot be read: entry {number}: {error}"
            ) from None

    def _numbers(self) -> list[int]:
        found = _asked(lambda: self._bucket.list(self._folder))
        names = [info.key.rpartition("/")[2] for info in found]
        return sorted(int(name) for name in names if name.isdecimal())

    def _key(self, number: int) -> str:
        return f"{self._folder}/{number:012}"


def _asked(work: Callable[[], T]) -> T:
    try:
        return work()
    except (AlreadyExists, Missing):
        raise
    except BucketError as error:
        raise OSError(errno.EIO, f"the bucket of the job's state: {error}") from error
