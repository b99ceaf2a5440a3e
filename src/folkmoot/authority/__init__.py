"""Who keeps a run's state. A client sees only this: watch the state, submit a message."""

from collections.abc import AsyncIterator
from typing import Protocol

from folkmoot.core.coordinator import Coordinator
from folkmoot.core.coordinator.messages import AnyEvent, Refused

__all__ = ["Authority", "Unreachable"]


class Unreachable(Exception):
    """The authority cannot be reached now; the message says why. Trying again may help."""


class Authority(Protocol):
    """A run's state, wherever it is kept."""

    def watch(self) -> AsyncIterator[Coordinator]:
        """The present view, then every newer one. Goes on by itself after a broken connection."""
        ...

    async def submit(self, message: AnyEvent) -> Refused | None:
        """Hand in a message as its sender; None once it is recorded for good, else why not.

        Raises `Unreachable` when nobody answers.
        """
        ...

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received since the beginning."""
        ...

    async def close(self) -> None: ...
