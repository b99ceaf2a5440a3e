"""What one participant may ask of a coordinator at once, and how often."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

MOST_REMEMBERED = 131_072


class Turns:
    """For each name, one at a time."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, name: str) -> AsyncIterator[None]:
        lock, waiting = self._locks.get(name, (asyncio.Lock(), 0))
        self._locks[name] = lock, waiting + 1
        try:
            async with lock:
                yield
        finally:
            lock, waiting = self._locks[name]
            if waiting > 1:
                self._locks[name] = lock, waiting - 1
            else:
                del self._locks[name]


class Rate:
    """At most `most` a second for each name."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counted: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def exceeded(self, name: str, now: float) -> bool:
        """Count one more at `now` (seconds); whether it is one too many."""
        second, count = self._counted.get(name, (0, 0))
        count = count + 1 if second == int(now) else 1
        self._counted[name] = int(now), count
        self._counted.move_to_end(name)
        while len(self._counted) > MOST_REMEMBERED:
            self._counted.popitem(last=False)
        return count > self._most
