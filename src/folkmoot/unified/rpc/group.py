"""The workers of a role, called together: all of them, the first, one, or each with its share.

    rollouts = current_worker().group("rollout")
    rollouts.call(Rollout.load, weights).result()          # every worker; a list of results
    rollouts.call_rank0("version").result()
    texts = rollouts.call_batch(Rollout.generate, len(prompts), prompts)   # split, then joined
    rollouts[2].call("reset")                              # one worker
    await rollouts.call("step")                            # all of it can be awaited

A method is named by its text, or by the function itself, and then its arguments are type-checked.
Everything returns at once; `result()` waits. As soon as one worker fails, so does the whole, and
says which.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from folkmoot.unified.rpc import values
from folkmoot.unified.rpc.call import Call
from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.errors import CallTimeout, RpcError
from folkmoot.unified.rpc.methods import name_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Broadcast(Generic[T]):
    """In `call_batch`: a sequence that every worker gets all of."""

    def __init__(self, value: T) -> None:
        self.value = value


class RoleActor:
    """One worker of a role."""

    def __init__(self, client: RpcClient, rank: int, timeout: float | None = None) -> None:
        self.client, self.rank = client, rank
        self.timeout = timeout

    @property
    def name(self) -> str:
        return self.client.actor

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def within(self, seconds: float | None) -> "RoleActor":
        """The same worker; calls that take longer fail and show where both sides are."""
        return RoleActor(self.client, self.rank, seconds)

    @overload
    def call(
        self, method: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Call[R]: ...
    @overload
    def call(self, method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...
    @overload
    def call(self, method: str, /, *args: Any, **kwargs: Any) -> Call[Any]: ...
    def call(self, method: Any, /, *args: Any, **kwargs: Any) -> Call[Any]:
        return self.client.request(name_of(method), args, kwargs, self.timeout)


class RoleGroup(Sequence[RoleActor]):
    """All workers of a role, in the order of their ranks."""

    def __init__(self, role: str, actors: Sequence[RoleActor]) -> None:
        self.role = role
        self._actors = list(actors)

    @overload
    def __getitem__(self, index: int) -> RoleActor: ...
    @overload
    def __getitem__(self, index: slice) -> "RoleGroup": ...
    def __getitem__(self, index: int | slice) -> "RoleActor | RoleGroup":
        if isinstance(index, slice):
            return RoleGroup(self.role, self._actors[index])
        return self._actors[index]

    def __len__(self) -> int:
        return len(self._actors)

    def __repr__(self) -> str:
        return f"<{self.role}: {len(self)} workers>"

    def within(self, seconds: float | None) -> "RoleGroup":
        """The same workers; calls that take longer fail and show where both sides are."""
        return RoleGroup(self.role, [actor.within(seconds) for actor in self._actors])

    @overload
    def call(
        self, method: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> "FutureSequence[R]": ...
    @overload
    def call(
        self, method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> "FutureSequence[R]": ...
    @overload
    def call(self, method: str, /, *args: Any, **kwargs: Any) -> "FutureSequence[Any]": ...
    def call(self, method: Any, /, *args: Any, **kwargs: Any) -> "FutureSequence[Any]":
        """Every worker, with the same arguments: one result of each."""
        parts, name = values.dump((args, kwargs)), name_of(method)
        return FutureSequence([a.client.send(name, parts, a.timeout) for a in self._actors])

    @overload
    def call_rank0(
        self, method: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Call[R]: ...
    @overload
    def call_rank0(
        self, method: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> Call[R]: ...
    @overload
    def call_rank0(self, method: str, /, *args: Any, **kwargs: Any) -> Call[Any]: ...
    def call_rank0(self, method: Any, /, *args: Any, **kwargs: Any) -> Call[Any]:
        """The first worker alone."""
        return self._some()[0].call(method, *args, **kwargs)

    def scatter(
        self, method: str | Callable[..., R], /, *args: Sequence[Any], **kwargs: Sequence[Any]
    ) -> "FutureSequence[R]":
        """Every worker with its own: the k-th element of each argument goes to the k-th worker."""
        for name, value in _named(args, kwargs):
            if not _splits(value) or len(value) != len(self):
                raise ValueError(f"scatter: {name} needs one element for each of {self!r}")
        return FutureSequence([
            actor.call(
                name_of(method), *(a[k] for a in args), **{n: v[k] for n, v in kwargs.items()}
            )
            for k, actor in enumerate(self._actors)
        ])  # fmt: skip

    def call_batch(
        self, method: str | Callable[..., Sequence[R]], size: int, /, *args: Any, **kwargs: Any
    ) -> "FutureSequence[R]":
        """Split `size` items evenly; the method takes some and returns one result for each.

        Sequences must have `size` items and are split; everything else goes to each worker whole.
        """
        for name, value in _named(args, kwargs):
            if _splits(value) and len(value) != size:
                raise ValueError(
                    f"call_batch: {name} has {len(value)} items, not {size}; wrap it in Broadcast()"
                    " if every worker should get all of it"
                )
        lens = [length for length in split(size, len(self._some())) if length]
        calls, start = [], 0
        for actor, length in zip(self._actors, lens, strict=False):
            part = slice(start, start + length)
            some = [_part(value, part) for value in args]
            named = {name: _part(value, part) for name, value in kwargs.items()}
            calls.append(actor.call(name_of(method), *some, **named))
            start += length
        return FutureSequence(calls, lens)

    def _some(self) -> list[RoleActor]:
        if not self._actors:
            raise ValueError(f"the role {self.role!r} has no workers to call")
        return self._actors


class FutureSequence(Sequence[T]):
    """The results of several calls, as one sequence: an item waits for the call that gives it."""

    def __init__(self, calls: Sequence[Call[Any]], lens: Sequence[int] | None = None) -> None:
        self.calls = list(calls)
        self._lens = list(lens) if lens is not None else None  # None: one result of each call

    def __len__(self) -> int:
        return len(self.calls) if self._lens is None else sum(self._lens)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[k] for k in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"{index} of {len(self)} results")
        for number, length in enumerate(self._lens or [1] * len(self.calls)):
            if at < length:
                return self._shard(number, self.calls[number].result())[at]
            at -= length
        raise AssertionError("lengths add up")

    def __iter__(self) -> Iterator[T]:
        return iter(self.result())

    def __repr__(self) -> str:
        return f"FutureSequence(lens={self._lens or [1] * len(self.calls)})"

    def result(self, timeout: float | None = None) -> list[T]:
        """All results; at once when one of the calls fails."""
        wait = concurrent.futures.wait
        done, hanging = wait(self.calls, timeout, concurrent.futures.FIRST_EXCEPTION)
        for call in self.calls:
            if call in done and call.exception() is not None:
                call.result()
        if hanging:
            raise _hangs([call for call in self.calls if call in hanging])
        return self._joined([call.result() for call in self.calls])

    wait = result

    def __await__(self) -> Generator[Any, None, list[T]]:
        results = yield from asyncio.gather(*map(asyncio.wrap_future, self.calls)).__await__()
        return self._joined(results)

    def _joined(self, results: Sequence[Any]) -> list[T]:
        return [item for k, result in enumerate(results) for item in self._shard(k, result)]

    def _shard(self, number: int, result: Any) -> Sequence[T]:
        if self._lens is None:
            return [result]
        call, expected = self.calls[number], self._lens[number]
        if not _splits(result) or len(result) != expected:
            what = f"{len(result)} results" if _splits(result) else type(result).__name__
            raise RpcError(f"{call.method} of {call.actor} returned {what} for {expected} items")
        return result  # type: ignore[no-any-return]


def split(size: int, workers: int) -> list[int]:
    """How many items each gets: as evenly as possible, the first ones one more."""
    if size < 0:
        raise ValueError(f"a batch cannot have {size} items")
    share, rest = divmod(size, workers)
    return [share + (k < rest) for k in range(workers)]


def _splits(value: object) -> bool:
    """Whether something is many: arrays and lists, not texts."""
    if isinstance(value, str | bytes | bytearray | memoryview | Mapping | Set | Broadcast):
        return False
    shape = getattr(value, "shape", None)
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and shape != ()


def _part(value: Any, part: slice) -> Any:
    if isinstance(value, Broadcast):
        return value.value
    return value[part] if _splits(value) else value


def _named(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for k, value in enumerate(args, 1):
        yield f"argument {k}", value
    for name, value in kwargs.items():
        yield f"{name}=", value


def _hangs(calls: list[Call[Any]]) -> Exception:
    """The error of the first one, with the names of the others."""
    try:
        calls[0].result(0)
    except CallTimeout as error:
        if len(calls) > 1:
            others = ", ".join(call.actor for call in calls[1:])
            return CallTimeout(f"{error}\n\nAlso without an answer: {others}")
        return error
    except RpcError as error:
        return error
    return CallTimeout(f"{calls[0].method} of {calls[0].actor} was answered too late")
