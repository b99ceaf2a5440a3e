"""A store in this process's memory, for tests: threads that name the same one share it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from folkmoot.authority.store.kv import StoreError, Wakeup, in_steps
from folkmoot.authority.store.kv.limits import check_key, check_value, sum_at


class _Space:
    """The keys and values that share a name."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def put(self, key: str, value: bytes) -> None:
        check_value(key, value)
        self.values[key] = bytes(value)
        self.changed.notify_all()


_spaces: dict[str, _Space] = {}
_spaces_lock = threading.Lock()


class MemoryStore:
    """One thread's connection to the store called `name`."""

    def __init__(self, name: str) -> None:
        with _spaces_lock:
            self._space = _spaces.setdefault(name, _Space())
        self._name = name
        self._closed = False

    @contextmanager
    def _open(self, key: str) -> Iterator[_Space]:
        check_key(key)
        if self._closed:
            raise StoreError(f"this connection to memory://{self._name} is closed; open another")
        with self._space.changed:
            yield self._space

    def get(self, key: str) -> bytes | None:
        with self._open(key) as space:
            return space.values.get(key)

    def get_many(self, keys: Sequence[str]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def set(self, key: str, value: bytes) -> None:
        with self._open(key) as space:
            space.put(key, value)

    def add(self, key: str, amount: int) -> int:
        with self._open(key) as space:
            total = sum_at(key, space.values.get(key), amount)
            space.put(key, b"%d" % total)
            return total

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes | None:
        check_value(key, desired)
        with self._open(key) as space:
            if space.values.get(key, b"") == expected:
                space.put(key, desired)
            return space.values.get(key)

    def compare_set_then_set(
        self, key: str, expected: bytes, desired: bytes, others: Sequence[str], value: bytes
    ) -> bytes | None:
        return in_steps.compare_set_then_set(self, key, expected, desired, others, value)

    def compare_set_and_append(
        self,
        key: str,
        expected: bytes,
        desired: bytes,
        list_key: str,
        note: bytes,
        wakeup: Wakeup | None = None,
    ) -> tuple[bytes | None, ...]:
        found = self.compare_set(key, expected, desired)
        self.append(list_key, note)
        return in_steps.appended(self, found, desired, self.get(list_key) or b"", wakeup)

    def move(self, key: str, expected: bytes, desired: bytes, before: str, after: str) -> bool:
        return in_steps.move(self, key, expected, desired, before, after)

    def add_and_create(
        self, key: str, near: int, made: Callable[[int], tuple[str, bytes]]
    ) -> int | None:
        return None

    def append(self, key: str, value: bytes) -> None:
        check_value(key, value)
        with self._open(key) as space:
            space.put(key, space.values.get(key, b"") + value)

    def wait(self, key: str, seconds: float, then: str = "") -> bytes | None:
        with self._open(key) as space:
            space.changed.wait_for(lambda: self._closed or key in space.values, max(0.0, seconds))
        value = self.get(key)
        return self.get(then) if then and value else value

    def watch(self, key: str, numbered: str) -> None:
        return None

    def delete(self, key: str) -> bool:
        with self._open(key) as space:
            return space.values.pop(key, None) is not None

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)

    def clone(self) -> Self:
        return type(self)(self._name)

    def close(self) -> None:
        self._closed = True
        with self._space.changed:
            self._space.changed.notify_all()
