"""The records that one client has checked, and whether another record follows from them. Pure.

Whoever can write to a store can write any record into it. A client goes on from what it checked
itself: a record counts when a line of records, each named by the next, leads from one that is known
here to it, and all of them verify. Of two lines that part, the longer counts, then the one whose
newest record has the smaller digest, so that all come to the same.
"""

from collections.abc import Callable
from hashlib import sha256

from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.record import (
    SPAN,
    Invalid,
    Place,
    Record,
    Step,
    base_version,
    read_record,
    verify_read,
)

# How many records those who come late find, at least.
KEPT = 2 * SPAN
_Read = tuple[bytes, Record, bytes]  # a record as it was found, and read: who made it


class Unlinked(Invalid):
    """A record that may be a good one, but nothing leads to it from what is known."""


class Chain:
    """Checked places of the log, in order."""

    def __init__(self, genesis: Genesis, first: Place) -> None:
        self.genesis = genesis
        self._places = [first]

    @property
    def newest(self) -> Place:
        return self._places[-1]

    @property
    def base(self) -> Place:
        """Where somebody who comes now begins."""
        return self._places[base_version(self.newest.version) - self._places[0].version]

    def since(self, version: int) -> list[Place]:
        return self._places[max(version - self._places[0].version, 0) :]

    def add(self, step: Step) -> None:
        """Go on with a step from a known place, leaving a line that parted from it there."""
        first = self._places[0].version
        self._places[step.place.version - first :] = [step.place]
        spare = max(base_version(self.newest.version) - SPAN - first, 0)
        del self._places[:spare]

    def follow(self, data: bytes, fetch: Callable[[int], bytes | None]) -> list[Step]:
        """The steps that lead to the record `data`; `fetch` gives what is said to be record n.

        Raises `Invalid`, of the record or of one on the way; `Unlinked` when the way is not there.
        """
        line, at = self._line(data, fetch)
        steps: list[Step] = []
        for each in line:
            steps.append(verify_read(self.genesis, at, *each))
            at = steps[-1].place
        if steps and not self._counts(at):
            raise Invalid(f"it is of version {at.version}, and {self.newest.version} is known")
        return steps

    def _line(self, data: bytes, fetch: Callable[[int], bytes | None]) -> tuple[list[_Read], Place]:
        """Records not known yet, the oldest first, and the known place they go on from."""
        record, by = read_record(self.genesis, data)
        if record.version > self.newest.version + KEPT:
            raise Unlinked("it is far ahead of what is known")
        line = [(data, record, by)]
        while (at := self._known(record.version - 1, record.before)) is None:
            before = fetch(record.version - 1) if self._within(record.version - 1) else None
            if before is None:
                raise Unlinked("nothing leads to it from what is known")
            expected = record.before
            record, by = read_record(self.genesis, before)
            line.append((before, record, by))
            if sha256(before).digest() != expected:
                raise Unlinked("nothing leads to it from what is known")
        return line[::-1], at

    def _within(self, version: int) -> bool:
        return version > self._places[0].version

    def _known(self, version: int, digest: bytes) -> Place | None:
        at = version - self._places[0].version
        found = self._places[at] if 0 <= at < len(self._places) else None
        return found if found is not None and found.digest == digest else None

    def _counts(self, at: Place) -> bool:
        """Whether a place in another line counts more than ours."""
        mine = self.newest
        return at.version > mine.version or (at.version == mine.version and at.digest < mine.digest)
