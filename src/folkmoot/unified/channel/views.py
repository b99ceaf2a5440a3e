"""Which mapped regions this process still looks at, and that whoever holds the channel is told.

When nothing uses a record's arrays any more, Python says so, in whichever thread that happens. The
next `Get` takes the news along; if none comes, a thread sends it a little later. A connection over
which regions came stays open until the last of them is let go: its end would mean that they are.
"""

import contextlib
import threading
from collections import deque
from queue import SimpleQueue
from typing import Any
from weakref import ref

from folkmoot.unified.channel.heap import Mapped
from folkmoot.unified.channel.line import ChannelLine
from folkmoot.unified.channel.messages import Released

LATER = 0.05
Key = tuple[str, int]  # the heap and the offset of a region


class _View(ref[Any]):
    """Says to the callback what it was that ended."""

    __slots__ = ("length", "line", "mapped", "region")

    line: ChannelLine
    region: Key
    length: int
    mapped: Mapped | None  # if it is a part of one


class Views:
    def __init__(self) -> None:
        self._refs: dict[int, _View] = {}
        self._over: deque[_View] = deque()
        self._count: dict[ChannelLine, int] = {}
        self._closing: set[ChannelLine] = set()
        self._lock = threading.Lock()
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def follow(
        self, seen: Any, line: ChannelLine, region: Key, length: int, mapped: Mapped | None
    ) -> None:
        view = _View(seen, self._ended)
        view.line, view.region, view.length, view.mapped = line, region, length, mapped
        self._refs[id(view)] = view
        with self._lock:
            self._count[line] = self._count.get(line, 0) + 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="views", daemon=True)
                self._thread.start()

    def _ended(self, view: Any) -> None:
        # It may run anywhere, even while a lock is held: all of this waits for nobody.
        self._refs.pop(id(view), None)
        self._over.append(view)
        if self._woken.empty():
            self._woken.put(None)

    def take(self, line: ChannelLine) -> list[Key]:
        """What is let go and was not told; whoever asks tells it over this line."""
        if not self._over:
            return []
        found = self._take()
        mine = found.pop(line, [])
        for other, regions in found.items():
            self._tell(other, regions)
        return mine

    def close_after(self, line: ChannelLine) -> None:
        """Close a connection when nothing that came over it is looked at."""
        with self._lock:
            self._closing.add(line)
        self._send()

    def _take(self) -> dict[ChannelLine, list[Key]]:
        found: dict[ChannelLine, list[Key]] = {}
        with contextlib.suppress(IndexError):
            while True:
                view = self._over.popleft()
                if view.mapped is not None:  # before anybody writes there again
                    view.mapped.forget(view.region[1], view.length)
                found.setdefault(view.line, []).append(view.region)
        with self._lock:
            for line, regions in found.items():
                self._count[line] -= len(regions)
        return found

    def _send(self) -> None:
        for line, regions in self._take().items():
            self._tell(line, regions)
        with self._lock:
            done = [line for line in self._closing if not self._count.get(line)]
            self._closing.difference_update(done)
        for line in done:
            line.close()

    def _tell(self, line: ChannelLine, regions: list[Key]) -> None:
        with contextlib.suppress(OSError):  # then whoever counted them is gone
            line.send(Released(regions))

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            self._woken.get()
            pause.wait(LATER)  # most of the time a `Get` comes meanwhile
            self._send()
