"""A shared store of keys and values: what processes with no coordinator agree through.

`folkmoot.authority.store.kv.open` opens one by its url: a torch TCPStore, etcd, or one in memory.
All of them pass the same conformance tests (`tests/authority/store/test_kv.py`):

- Every operation has happened when it returns, and all processes see one order of them.
- A key that is missing reads as None at once. A value is never empty: `b""` stands for "missing" in
  `compare_set`, and nowhere else.
- An object is one connection, for one thread at a time. `clone` gives another thread its own, so
  that one who waits holds up nobody.
"""

from collections.abc import Sequence
from typing import Protocol

__all__ = ["MAX_VALUE", "Store", "StoreError", "StoreGone", "WrongType"]

# The most bytes of a value; more is refused before it is sent. etcd takes no more by default.
MAX_VALUE = 1024 * 1024


class StoreError(Exception):
    """The store did not do what it was asked; the message says what to do about it."""


class StoreGone(StoreError):
    """Nobody answers. The operation may or may not have happened."""


class WrongType(StoreError):
    """The key holds what this operation cannot be done to."""


class Store(Protocol):
    """One connection to a shared store."""

    def get(self, key: str) -> bytes | None:
        """The value now, or None."""
        ...

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Each key's value or None; fast when all exist, as those created beforehand do."""
        ...

    def set(self, key: str, value: bytes) -> None:
        """Never for an election: the last one to write wins, and the first does not learn it."""
        ...

    def add(self, key: str, amount: int) -> int:
        """Add to the decimal number at the key (0 when missing); the sum. Raises `WrongType`."""
        ...

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        """Write `desired` if the value is `expected` (`b""`: if there is none).

        Gives the value after that. Who makes every `desired` unique has won if it is that.
        """
        ...

    def compare_set_and_count(
        self, key: str, expected: bytes, desired: bytes, counter: str
    ) -> tuple[bytes | None, int]:
        """`compare_set`, and then, however that went, `add` 1 to another key; one trip if it can.

        Others may come between the two.
        """
        ...

    def append(self, key: str, value: bytes) -> None:
        """Add bytes to the end of the value (of none: the value)."""
        ...

    def wait(self, key: str, seconds: float) -> bytes | None:
        """The value as soon as there is one; None when there was none for so long."""
        ...

    def delete(self, key: str) -> bool:
        """Whether there was a value to remove."""
        ...

    def delete_many(self, keys: Sequence[str]) -> None: ...

    def clone(self) -> "Store":
        """A connection of its own to the same store."""
        ...

    def close(self) -> None: ...
