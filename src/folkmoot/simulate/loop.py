"""Simulated time: a heap of timed events, and the one source of chance of a world.

Everything a world does happens in an event of its `Loop`; two runs of one seed are the same run.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any


class Loop:
    """Events in the order of their time; those of one time in the order they were asked for."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0  # milliseconds
        self.events = 0
        self._heap: list[tuple[int, int, Callable[..., object], tuple[Any, ...]]] = []
        self._asked = 0

    def at(self, time: int, action: Callable[..., object], *args: Any) -> None:
        self._asked += 1
        heappush(self._heap, (max(time, self.now), self._asked, action, args))

    def after(self, delay: float, action: Callable[..., object], *args: Any) -> None:
        self.at(self.now + int(delay), action, *args)

    def step(self) -> bool:
        """Let the next event happen; False when there is none."""
        if not self._heap:
            return False
        self.now, _, action, args = heappop(self._heap)
        self.events += 1
        action(*args)
        return True

    def chance(self, likelihood: float) -> bool:
        return likelihood > 0 and self.random.random() < likelihood
