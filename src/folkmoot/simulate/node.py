"""A node of a world: something that can crash, restart, freeze, and whose clock may be wrong."""

from collections.abc import Callable
from typing import Any

from folkmoot.simulate.loop import Loop


class Node:
    """Its timers die with it; frozen, they wait."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.up = True
        self.life = 0
        self.frozen_until = 0
        self.retired = False  # whether it has stopped lying, if it did
        self.rate = 1.0  # of its clock: 1.1 is a tenth too fast

    def after(self, delay: float, action: Callable[..., object], *args: Any) -> None:
        """Do something later, by this node's own clock, if it has not crashed by then."""
        self.loop.after(delay / self.rate, self._fire, self.life, action, args)

    def arrive(self, action: Callable[..., object], args: tuple[Any, ...]) -> None:
        """A message reaches this node."""
        if not self.up:
            return
        if self.frozen_until > self.loop.now:
            self.loop.at(self.frozen_until, self.arrive, action, args)
        else:
            action(*args)

    def crash(self, pause: float) -> None:
        """Stop at once, and come back after `pause`.

        What must not outlive memory is cleared by the subclass's `forget`.
        """
        if self.up:
            self.up = False
            self.life += 1
            self.forget()
            self.loop.after(pause, self.restart)

    def restart(self) -> None:
        if not self.up:
            self.up = True
            self.start()

    def freeze(self, duration: float) -> None:
        self.frozen_until = self.loop.now + int(duration)

    def forget(self) -> None:
        """Lose what was in memory."""

    def reform(self) -> None:
        """Stop lying, if it did: the time of faults is over."""
        self.retired = True

    def start(self) -> None:
        """Begin, or begin again."""

    def _fire(self, life: int, action: Callable[..., object], args: tuple[Any, ...]) -> None:
        if life != self.life:
            return
        if self.frozen_until > self.loop.now:
            self.loop.at(self.frozen_until, self._fire, life, action, args)
        else:
            action(*args)
