"""Which regions of the producers' heap files are in use, and when a region or a file is not.

A region is given back to its producer when its records are over and nobody reads it: a consumer
says as often as it was told of a region that it has done with it, or is gone with its connection. A
file is removed when its producer is gone and nothing in it is in use.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

PREFIX = "heap."
Key = tuple[str, int]  # the heap's name and the region's offset


class Heaps:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owners: set[str] = set()  # heaps whose producer is connected
        self._live: dict[str, int] = defaultdict(int)  # regions in use, of each heap
        self._readers: dict[Key, dict[str, int]] = {}  # how often each was told of it
        self._over: set[Key] = set()  # records that are over, but still read
        #: Regions that their producers may use again, and have not been told of.
        self.freed: dict[str, list[int]] = {}

    def path(self, heap: str) -> Path:
        return self._folder / heap

    def own(self, heap: str) -> None:
        self._owners.add(heap)

    def disown(self, heap: str) -> None:
        """The producer is gone."""
        self._owners.discard(heap)
        self.freed.pop(heap, None)
        self._remove_if_unused(heap)

    def used(self, heap: str, count: int) -> None:
        """So many regions are in the channel now."""
        if count:
            self._live[heap] += count

    def unused(self, heap: str, offsets: list[int]) -> None:
        if offsets:
            self.freed.setdefault(heap, []).extend(offsets)

    def read(self, heap: str, offset: int, reader: str) -> None:
        readers = self._readers.setdefault((heap, offset), {})
        readers[reader] = readers.get(reader, 0) + 1

    def over(self, heap: str, offset: int) -> None:
        """A region's records are acked."""
        if self._readers.get((heap, offset)):
            self._over.add((heap, offset))
        else:
            self._free(heap, offset)

    def released(self, reader: str, regions: Iterable[Key]) -> None:
        for heap, offset in regions:
            self._release(reader, (heap, offset))

    def gone(self, reader: str) -> None:
        """A reader is gone, with all that it had mapped."""
        for key in [key for key, readers in self._readers.items() if reader in readers]:
            self._readers[key][reader] = 1
            self._release(reader, key)

    def sweep(self) -> None:
        """When a channel is taken up: files in which nothing is in use belonged to the dead."""
        for path in self._folder.glob(f"{PREFIX}*"):
            self._remove_if_unused(path.name)

    def _release(self, reader: str, key: Key) -> None:
        readers = self._readers.get(key)
        if not readers or reader not in readers:
            return
        readers[reader] -= 1
        if not readers[reader]:
            del readers[reader]
        if not readers:
            self._readers.pop(key, None)
            if key in self._over:
                self._over.discard(key)
                self._free(*key)

    def _free(self, heap: str, offset: int) -> None:
        self._live[heap] -= 1
        if heap in self._owners:
            self.unused(heap, [offset])
        else:
            self._remove_if_unused(heap)

    def _remove_if_unused(self, heap: str) -> None:
        if heap not in self._owners and not self._live.get(heap):
            self._live.pop(heap, None)
            self.path(heap).unlink(missing_ok=True)
