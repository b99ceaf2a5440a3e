"""Read anew when an answer breaks off: obstore retries a request, but not its body."""

import contextlib
import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from folkmoot.exchange.bucket.errors import BrokenOff

READS = 5
P = ParamSpec("P")
T = TypeVar("T")


def retry_broken_off(method: Callable[P, T]) -> Callable[P, T]:
    @functools.wraps(method)
    def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(READS - 1):
            with contextlib.suppress(BrokenOff):
                return method(*args, **kwargs)
        return method(*args, **kwargs)

    return reading


def retry_broken_off_async(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    @functools.wraps(method)
    async def reading(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(READS - 1):
            with contextlib.suppress(BrokenOff):
                return await method(*args, **kwargs)
        return await method(*args, **kwargs)

    return reading
