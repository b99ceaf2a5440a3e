"""A shared store of keys and values: what processes with no coordinator agree through.

`folkmoot.authority.store.kv.open` opens one by its url: a torch TCPStore, etcd, or one in memory.
All of them pass the same conformance tests (`tests/authority/store/test_kv.py`):

- Every operation has happened when it returns, and all processes see one order of them.
- A key that is missing reads as None at once. A value is never empty: `b""` stands for "missing" in
  `compare_set`, and nowhere else.
- An object is one connection, for one thread at a time. `clone` gives another thread its own, so
  that one who waits holds up nobody.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from folkmoot.core.user_error import UserError

__all__ = [
    "MAX_VALUE",
    "Change",
    "Store",
    "StoreError",
    "StoreGone",
    "Wakeup",
    "Watch",
    "WrongType",
]

# The most bytes of a value; more is refused before it is sent. etcd takes no more by default.
MAX_VALUE = 1024 * 1024


class StoreError(UserError):
    """The store did not do what it was asked; the message says what to do about it."""


class StoreGone(StoreError):
    """Nobody answers. The operation may or may not have happened."""


class WrongType(StoreError):
    """The key holds what this operation cannot be done to."""


class Wakeup(NamedTuple):
    """What to wait for behind something else: as `Store.wait`, but without `then` nothing is read,
    and an empty value says that the key came."""

    worth: Callable[[bytes], bool]
    key: str
    seconds: float
    then: str


# The number of the key that changed, or None for the one without, and its value, or None if gone.
Change = tuple[int | None, bytes | None]


class Watch(Protocol):
    """What happens to a key, and if wanted to numbered ones, as told; for one thread."""

    def begin(self) -> bytes | None:
        """From now on, also after it broke: the value of the key now."""
        ...

    def numbered(self, wanted: bool) -> None:
        """Whether those with numbers are watched, too: of all that happens after this call."""
        ...

    def changes(self, seconds: float) -> list[Change] | None:
        """What happened, in its order; nothing if nothing did for so long; None if it broke."""
        ...

    def close(self) -> None: ...


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

    def compare_set_then_set(
        self, key: str, expected: bytes, desired: bytes, others: Sequence[str], value: bytes
    ) -> bytes | None:
        """`compare_set`, and then, if that gives the desired value, `set` others in their order.

        Others may come between these.
        """
        ...

    def compare_set_and_append(
        self,
        key: str,
        expected: bytes,
        desired: bytes,
        list_key: str,
        note: bytes,
        wakeup: Wakeup | None = None,
    ) -> tuple[bytes | None, ...]:
        """`compare_set`, and then, however that went, append a note to a list, and read all of it.

        One trip if it can; others may come between. Notes stand on it in any order. A list is
        a key that is read by this and removed by `delete_many`, and is nothing to any other
        operation.

        With `wakeup`, when the first went well and `wakeup.worth` says so of the list: `wait` for
        it, whose value comes behind the two.
        """
        ...

    def move(self, key: str, expected: bytes, desired: bytes, before: str, after: str) -> bool:
        """`compare_set`, and whether it was us, between a copy of each in a key of its own.

        `before`, unless empty, holds `expected` before the move, and `after` holds `desired` after
        it: in one transaction if the store has them. Elsewhere who dies in between leaves `after`
        as it was.
        """
        ...

    def add_and_create(
        self, key: str, near: int, made: Callable[[int], tuple[str, bytes]]
    ) -> int | None:
        """`add` 1 and create the key that `made` gives for the sum, in one trip; the sum.

        None, and nothing happened, if the sum would not be `near` or the next few numbers, if there
        is such a key, or if the store has no transactions. `made` may be asked for several sums.
        """
        ...

    def append(self, key: str, value: bytes) -> None:
        """Add bytes to the end of the value (of none: the value)."""
        ...

    def wait(self, key: str, seconds: float, then: str = "") -> bytes | None:
        """The value as soon as there is one; None when there was none for so long.

        With `then`, that key's value as soon as `key` has one: a wakeup, and what it is set for.
        Such a wakeup may be seen where none was set; who needs to know reads it in that value.
        """
        ...

    def watch(self, key: str, numbered: str) -> Watch | None:
        """Of the key, and of those that are called `numbered` and a number; None: it has none."""
        ...

    def delete(self, key: str) -> bool:
        """Whether there was a value to remove."""
        ...

    def delete_many(self, keys: Sequence[str]) -> None:
        """Of lists, too."""
        ...

    def clone(self) -> "Store":
        """A connection of its own to the same store."""
        ...

    def close(self) -> None: ...
