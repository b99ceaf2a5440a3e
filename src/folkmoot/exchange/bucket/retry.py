"""Read anew when an answer breaks off: obstore retries a request, but not its body."""

import contextlib
import functools
from collections.abc import Callable
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
