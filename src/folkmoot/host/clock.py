"""Time in milliseconds, and pauses between attempts."""

import random
import time
from collections.abc import Callable, Iterator

Clock = Callable[[], int]


def wall_clock() -> int:
    """Since 1970; what is written outlives the machine's boot, so this is no monotonic clock."""
    return time.time_ns() // 1_000_000


def rising_clock(last: int, clock: Clock = wall_clock) -> Clock:
    """A clock that is never earlier than before, nor than `last`, even when it is set back."""
    latest = last

    def now() -> int:
        nonlocal latest
        latest = max(latest, clock())
        return latest

    return now


def standing_clock(last: int, pause: float = 0.0) -> Clock:
    """Goes on from `last`: the time of a machine that stands still while nobody holds it.

    And for `pause` seconds after that, in which others find the new holder.
    """
    begun = time.monotonic() - last / 1000 + pause
    return lambda: max(round((time.monotonic() - begun) * 1000), last)


def backoff(first: float = 0.1, most: float = 10.0) -> Iterator[float]:
    """Delays that double, with jitter so that a thousand callers do not come back at once."""
    delay = first
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(delay * 2, most)
