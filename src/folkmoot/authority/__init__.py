"""Who keeps a run's state. A client sees only this: watch the state, submit a message.

`folkmoot.authority.open` opens one by its url, whatever its kind.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from folkmoot.core.user_error import UserError

if TYPE_CHECKING:  # else a rank that only wants a store loads the rules of a run, and numpy
    from folkmoot.core.coordinator import Coordinator
    from folkmoot.core.coordinator.messages import AnyEvent, Refused

__all__ = ["Authority", "DataServer", "Denied", "SeesConnections", "Unreachable"]


class Unreachable(UserError):
    """The authority cannot be reached now; the message says why. Trying again may help."""


class Denied(UserError):
    """The authority will not have us; the message says why. Trying again does not help."""


class Authority(Protocol):
    """A run's state, wherever it is kept."""

    def watch(self) -> AsyncIterator[Coordinator]:
        """The present view, then every newer one. Goes on by itself after a broken connection.

        Raises `Denied`, also when no connection of this kind can ever work.
        """
        ...

    async def submit(self, message: AnyEvent) -> Refused | None:
        """Hand in a message as its sender; None once it is recorded for good, else why not.

        Tries once. Raises `Unreachable` when nobody answers, and `Denied`.
        """
        ...

    @property
    def last_error(self) -> str:
        """Why it cannot be reached now, or ""."""
        ...

    def traffic(self) -> tuple[int, int]:
        """Bytes sent and received since the beginning."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class DataServer(Protocol):
    """An authority that also hands out data files, as a server can and a ledger cannot."""

    async def read(self, name: str, start: int, length: int) -> tuple[int, bytes]:
        """(size of the whole, bytes) of a data file; fewer bytes than asked for, if it likes."""
        ...


@runtime_checkable
class SeesConnections(Protocol):
    """An authority to which every client is connected, as to a server."""

    on_hung_up: Callable[[tuple[bytes, ...]], None]
    """Called with the clients whose connections ended: perhaps they are gone, perhaps not."""
