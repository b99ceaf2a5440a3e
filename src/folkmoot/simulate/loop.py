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
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._asked = 0

    def at(self, time: int, action: Callable[..., None], *args: Any) -> None:
        self._asked += 1
        heappush(self._heap, (max(time, self.now), self._asked, action, args))

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
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


class Node:
    """Something that can crash, restart and freeze. Its timers die with it; frozen, they wait."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.up = True
        self.life = 0
        self.frozen_until = 0
        self.rate = 1.0  # of its clock: 1.1 is a tenth too fast

    def after(self, delay: float, action: Callable[..., None], *args: Any) -> None:
        """Do something later, by this node's own clock, if it has not crashed by then."""
        self.loop.after(delay / self.rate, self._fire, self.life, action, args)

    def arrive(self, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        """A message reaches this node."""
        if not self.up:
            return
        if self.frozen_until > self.loop.now:
            self.loop.at(self.frozen_until, self.arrive, action, args)
        else:
            action(*args)

    def crash(self) -> None:
        """Stop at once. What must not outlive memory is cleared by the subclass's `forget`."""
        if self.up:
            self.up = False
            self.life += 1
            self.forget()

    def restart(self) -> None:
        if not self.up:
            self.up = True
            self.start()

    def freeze(self, duration: float) -> None:
        self.frozen_until = self.loop.now + int(duration)

    def forget(self) -> None:
        """Lose what was in memory."""

    def start(self) -> None:
        """Begin, or begin again."""

    def _fire(self, life: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        if life != self.life:
            return
        if self.frozen_until > self.loop.now:
            self.loop.at(self.frozen_until, self._fire, life, action, args)
        else:
            action(*args)
