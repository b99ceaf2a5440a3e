"""How many bytes a client exchanges with a store: keys and values, without what carries them."""

from collections.abc import Sequence

from folkmoot.authority.store.kv import Store


class Traffic:
    """Counted by all connections of a client; each has a thread, and Python adds one at a time."""

    def __init__(self) -> None:
        self.sent = self.received = 0


class CountedStore:
    """`store`, with what goes through it counted."""

    def __init__(self, store: Store, traffic: Traffic) -> None:
        self._store, self._traffic = store, traffic

    def get(self, key: str) -> bytes | None:
        return self._count(self._store.get(key), len(key))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [
            self._count(value, len(k))
            for k, value in zip(keys, self._store.get_many(keys), strict=True)
        ]

    def set(self, key: str, value: bytes) -> None:
        self._count(None, len(key) + len(value))
        self._store.set(key, value)

    def add(self, key: str, amount: int) -> int:
        self._count(bytes(8), len(key) + 8)
        return self._store.add(key, amount)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        after = self._store.compare_set(key, expected, desired)
        return self._count(after, len(key) + len(expected) + len(desired))

    def compare_set_and_set(
        self, key: str, expected: bytes, desired: bytes, other: str, value: bytes
    ) -> bytes | None:
        after = self._store.compare_set_and_set(key, expected, desired, other, value)
        sent = len(key) + len(expected) + len(desired) + len(other) + len(value)
        return self._count(after, sent)

    def compare_set_and_pile(
        self, key: str, expected: bytes, desired: bytes, pile: str, note: bytes, bell: str = ""
    ) -> tuple[bytes | None, bytes]:
        after, notes = self._store.compare_set_and_pile(key, expected, desired, pile, note, bell)
        self._count(notes, len(pile) + len(note) + len(bell))
        return self._count(after, len(key) + len(expected) + len(desired)), notes

    def append(self, key: str, value: bytes) -> None:
        self._count(None, len(key) + len(value))
        self._store.append(key, value)

    def wait(self, key: str, seconds: float, then: str = "") -> bytes | None:
        return self._count(self._store.wait(key, seconds, then), len(key) + len(then))

    def delete(self, key: str) -> bool:
        self._count(None, len(key))
        return self._store.delete(key)

    def delete_many(self, keys: Sequence[str]) -> None:
        self._count(None, sum(map(len, keys)))
        self._store.delete_many(keys)

    def clone(self) -> "CountedStore":
        return CountedStore(self._store.clone(), self._traffic)

    def close(self) -> None:
        self._store.close()

    def _count(self, value: bytes | None, sent: int) -> bytes | None:
        self._traffic.sent += sent
        self._traffic.received += len(value or b"")
        return value
