"""A part of a store that one run or job has for itself: every key gets a prefix."""

from collections.abc import Callable, Sequence

from folkmoot.authority.store.kv import Store, Wakeup, Watch


class PrefixStore:
    """`store`, where `key` is `prefix/key`."""

    def __init__(self, store: Store, prefix: str) -> None:
        self._store, self._prefix = store, prefix

    def _key(self, key: str) -> str:
        # An empty key stays one, to be refused.
        return f"{self._prefix}/{key}" if key else key

    def get(self, key: str) -> bytes | None:
        return self._store.get(self._key(key))

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return self._store.get_many([self._key(key) for key in keys])

    def set(self, key: str, value: bytes) -> None:
        self._store.set(self._key(key), value)

    def add(self, key: str, amount: int) -> int:
        return self._store.add(self._key(key), amount)

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        return self._store.compare_set(self._key(key), expected, desired)

    def compare_set_then_set(
        self, key: str, expected: bytes, desired: bytes, others: Sequence[str], value: bytes
    ) -> bytes | None:
        name, names = self._key(key), list(map(self._key, others))
        return self._store.compare_set_then_set(name, expected, desired, names, value)

    def compare_set_and_append(
        self,
        key: str,
        expected: bytes,
        desired: bytes,
        list_key: str,
        note: bytes,
        wakeup: Wakeup | None = None,
    ) -> tuple[bytes | None, ...]:
        name, onto = self._key(key), self._key(list_key)
        if wakeup is not None:
            then = self._key(wakeup.then) if wakeup.then else ""
            wakeup = Wakeup(wakeup.worth, self._key(wakeup.key), wakeup.seconds, then)
        return self._store.compare_set_and_append(name, expected, desired, onto, note, wakeup)

    def move(self, key: str, expected: bytes, desired: bytes, before: str, after: str) -> bool:
        names = self._key(before), self._key(after)
        return self._store.move(self._key(key), expected, desired, *names)

    def add_and_create(
        self, key: str, near: int, made: Callable[[int], tuple[str, bytes]]
    ) -> int | None:
        def named(number: int) -> tuple[str, bytes]:
            name, value = made(number)
            return self._key(name), value

        return self._store.add_and_create(self._key(key), near, named)

    def append(self, key: str, value: bytes) -> None:
        self._store.append(self._key(key), value)

    def wait(self, key: str, seconds: float, then: str = "") -> bytes | None:
        return self._store.wait(self._key(key), seconds, self._key(then))

    def watch(self, key: str, numbered: str) -> Watch | None:
        return self._store.watch(self._key(key), self._key(numbered))

    def delete(self, key: str) -> bool:
        return self._store.delete(self._key(key))

    def delete_many(self, keys: Sequence[str]) -> None:
        self._store.delete_many([self._key(key) for key in keys])

    def clone(self) -> "PrefixStore":
        return PrefixStore(self._store.clone(), self._prefix)

    def close(self) -> None:
        self._store.close()
