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


class Addresses:
    """Where actors are, for those who ask and those who wait; any thread may change it."""

    def __init__(self, addresses: dict[str, str] | None = None) -> None:
        self._addresses = dict(addresses or {})
        self._changed = threading.Condition()

    def replace(self, addresses: dict[str, str]) -> None:
        """These are all that there are."""
        with self._changed:
            self._addresses = dict(addresses)
            self._changed.notify_all()

    def names(self) -> list[str]:
        with self._changed:
            return list(self._addresses)

    def find(self, actor: str, not_at: str | None = None, wait: float = 0.0) -> str | None:
        """As `Directory.find`."""
        until = time.monotonic() + wait
        with self._changed:
            while (address := self._addresses.get(actor)) is None or address == not_at:
                if not self._changed.wait(until - time.monotonic()):
                    return None
            return address


class AddressBook(Addresses):
    """A directory in this process: whoever starts actors writes their addresses into it."""

    def set(self, actor: str, address: str | None) -> None:
        with self._changed:
            others = {name: at for name, at in self._addresses.items() if name != actor}
            self._addresses = others if address is None else {**others, actor: address}
            self._changed.notify_all()

    def members(self, role: str) -> list[str] | None:
        ranks = [name.rpartition("-") for name in self.names()]
        found = sorted(int(rank) for of, _, rank in ranks if of == role and rank.isdecimal())
        return [f"{role}-{rank}" for rank in found] or None
