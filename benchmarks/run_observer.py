"""Follows a live run like a client that never joins: for benchmarks that look at its rounds."""

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from folkmoot.core.coordinator import Coordinator, Phase

PATIENCE = 240.0


class Observer:
    """Notes when what began."""

    def __init__(self, authority: Any) -> None:
        self.authority = authority
        self.state: Coordinator | None = None
        self.began: dict[tuple[int, int], float] = {}  # rounds, by epoch and height
        self.phases: list[tuple[float, Phase]] = []
        self._news = asyncio.Event()

    async def follow(self) -> None:
        async for state in self.authority.watch():
            now = time.monotonic()
            self.state = state
            # Who had no connection for a moment missed rounds: as far as it knows they began now.
            for round_ in state.epoch.rounds:
                self.began.setdefault((state.epoch_number, round_.height), now)
            if not self.phases or self.phases[-1][1] is not state.phase:
                self.phases.append((now, state.phase))
            self._news.set()

    async def until(self, done: Callable[[Coordinator], Any], what: str) -> Coordinator:
        try:
            async with asyncio.timeout(PATIENCE):
                while self.state is None or not done(self.state):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise RuntimeError(f"waited for {what} in vain: {self.phases[-5:]}") from None
        return self.state

    def lengths(self, epoch: int, first: int, count: int) -> list[float]:
        starts = [self.began[epoch, height] for height in range(first, first + count + 1)]
        return [after - before for before, after in pairwise(starts)]
