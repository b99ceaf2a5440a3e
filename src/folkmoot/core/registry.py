"""A frozen collection of records by identity, in shards, so that one change copies little.

Ten thousand pending clients in one tuple would make each join copy ten thousand pointers. Here a
change copies one shard and the list of shards. Order is by identity: it does not depend on arrival.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

import msgspec

SHARDS = 128
_id = attrgetter("id")


class Identified(Protocol):
    @property
    def id(self) -> bytes: ...


R = TypeVar("R", bound=Identified)


class Registry(msgspec.Struct, Generic[R], frozen=True, array_like=True):
    """Records by `id`; `put` and `drop` give a new registry and leave this one as it is."""

    count: int = 0
    shards: tuple[tuple[R, ...], ...] = ((),) * SHARDS

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[R]:
        return chain.from_iterable(self.shards)

    def get(self, identity: bytes) -> R | None:
        shard, at = self._find(identity)
        return shard[at] if at < len(shard) and shard[at].id == identity else None

    def put(self, record: R) -> "Registry[R]":
        """With `record`, in place of an earlier one of the same id."""
        shard, at = self._find(record.id)
        replaced = at < len(shard) and shard[at].id == record.id
        changed = (*shard[:at], record, *shard[at + replaced :])
        return self._with(record.id, changed, self.count + (not replaced))

    def drop(self, identity: bytes) -> "Registry[R]":
        shard, at = self._find(identity)
        if at == len(shard) or shard[at].id != identity:
            return self
        return self._with(identity, (*shard[:at], *shard[at + 1 :]), self.count - 1)

    def mapped(
        self, change: Callable[[R], R], before: "Registry[R]", result: "Registry[R]"
    ) -> "Registry[R]":
        """With `change` made to every record, as it was to those of `before`, giving `result`.

        The identity of a record must stay. Only shards that are not those of `before` are walked.
        """
        shards = tuple(
            known if mine is old else tuple(map(change, mine))
            for mine, old, known in zip(self.shards, before.shards, result.shards, strict=True)
        )
        return Registry(self.count, shards)

    def _find(self, identity: bytes) -> tuple[tuple[R, ...], int]:
        shard = self.shards[_shard(identity)]
        return shard, bisect_left(shard, identity, key=_id)

    def _with(self, identity: bytes, shard: tuple[R, ...], count: int) -> "Registry[R]":
        k = _shard(identity)
        return Registry(count, (*self.shards[:k], shard, *self.shards[k + 1 :]))


def registry_of(records: Any) -> Registry[Any]:
    """A registry of many records at once."""
    shards: list[list[Any]] = [[] for _ in range(SHARDS)]
    for record in sorted(records, key=_id):
        shards[_shard(record.id)].append(record)
    return Registry(sum(map(len, shards)), tuple(map(tuple, shards)))


def _shard(identity: bytes) -> int:
    return identity[0] * SHARDS // 256
