"""Lets large messages out a few at a time, and nobody wait for one who does not read.

A place is given back when the message is out, or after `PATIENCE`, whichever is first: a hundred
stopped readers cost the others a moment each, not their place.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

LARGE = 16 * 1024
PLACES = 64
PATIENCE = 0.25


class LargeMessages:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(PLACES)
        self.free = PLACES

    @asynccontextmanager
    async def passing(self, size: int) -> AsyncIterator[None]:
        """Wait for a place if `size` bytes are many, and hold it for the time of the block."""
        if size < LARGE:
            yield
            return
        await self._places.acquire()
        self.free -= 1
        held = [self._places]

        def give_back() -> None:
            while held:
                held.pop().release()
                self.free += 1

        timer = asyncio.get_running_loop().call_later(PATIENCE, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
