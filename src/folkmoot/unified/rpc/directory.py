"""Where actors are now. They die and come back elsewhere; whoever knows, tells."""

import threading
import time
from typing import Protocol


class Directory(Protocol):
    def find(self, actor: str, not_at: str | None = None, wait: float = 0.0) -> str | None:
        """The address of an actor; None if it has none, or only `not_at`, where nobody answered.

        Waits up to `wait` seconds for one.
        """
        ...

    def members(self, role: str) -> list[str] | None:
        """The workers that a role has now, by rank; None if there is no such role."""
        ...


class AddressBook:
    """A directory in this process: whoever starts actors writes their addresses into it."""

    def __init__(self, addresses: dict[str, str] | None = None) -> None:
        self._addresses = dict(addresses or {})
        self._changed = threading.Condition()

    def set(self, actor: str, address: str | None) -> None:
        with self._changed:
            if address is None:
                self._addresses.pop(actor, None)
            else:
                self._addresses[actor] = address
            self._changed.notify_all()

    def find(self, actor: str, not_at: str | None = None, wait: float = 0.0) -> str | None:
        until = time.monotonic() + wait
        with self._changed:
            while (address := self._addresses.get(actor)) is None or address == not_at:
                if not self._changed.wait(until - time.monotonic()):
                    return None
            return address

    def members(self, role: str) -> list[str] | None:
        with self._changed:
            ranks = [name.rpartition("-") for name in self._addresses]
        found = sorted(int(rank) for of, _, rank in ranks if of == role and rank.isdecimal())
        return [f"{role}-{rank}" for rank in found] or None
