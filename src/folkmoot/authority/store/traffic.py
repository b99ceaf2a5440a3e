"""How many bytes a client exchanges with a store: keys and values, without what carries them."""

from collections.abc import Callable
from typing import Any, cast

from folkmoot.authority.store.kv import Store, Watch


class Traffic:
    """Counted by all connections of a client; each has a thread, and Python adds one at a time."""

    def __init__(self) -> None:
        self.sent = self.received = 0


def counted(store: Store, traffic: Traffic) -> Store:
    """`store`, with what goes through it counted."""
    return cast(Store, _Counted(store, traffic))


class _Counted:
    def __init__(self, store: Store, traffic: Traffic) -> None:
        self._store, self._traffic = store, traffic

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def request(*arguments: Any) -> Any:
            self._traffic.sent += _size(arguments)
            answer = getattr(self._store, operation)(*arguments)
            self._traffic.received += _size(answer)
            return answer

        return request

    def watch(self, key: str, numbered: str) -> Watch | None:
        watch = self._store.watch(key, numbered)
        return watch and cast(Watch, _Counted(cast(Store, watch), self._traffic))

    def clone(self) -> Store:
        return counted(self._store.clone(), self._traffic)


def _size(said: Any) -> int:
    """Of the keys, values and numbers in it."""
    match said:
        case str() | bytes():
            return len(said)
        case bool():
            return 0
        case int():
            return 8
        case list() | tuple():
            return sum(map(_size, said))
    return 0
