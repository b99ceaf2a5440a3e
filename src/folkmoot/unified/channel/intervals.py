"""A set of whole numbers kept as intervals: small when they are nearly all in a row, as ids are."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class IdRange(NamedTuple):
    """The ids from `first` on, up to but without `end`."""

    first: int
    end: int


class Intervals:
    """Disjoint spans in order, with a gap between any two."""

    def __init__(self, spans: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in spans:
            self.add(first, end)

    def __iter__(self) -> Iterator[IdRange]:
        return map(IdRange, self._firsts, self._ends)

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number < self._ends[at]

    def __len__(self) -> int:
        """How many numbers there are, not how many spans."""
        return sum(self._ends) - sum(self._firsts)

    def add(self, first: int, end: int) -> None:
        """Add a span; those that it meets or touches become one with it."""
        if first >= end:
            return
        low = bisect_right(self._ends, first - 1)
        high = bisect_right(self._firsts, end)
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def within(self, first: int, end: int) -> list[IdRange]:
        """The parts of a span that are in the set."""
        at = bisect_right(self._ends, first)
        found = []
        while at < len(self._firsts) and self._firsts[at] < end:
            found.append(IdRange(max(first, self._firsts[at]), min(end, self._ends[at])))
            at += 1
        return found


def spans_of(numbers: Iterable[int]) -> list[IdRange]:
    """The same numbers as spans, in order."""
    return list(Intervals((number, number + 1) for number in numbers))
