"""Time: milliseconds since 1970, and pauses between attempts."""

import random
import time
from collections.abc import Iterator


def wall_clock() -> int:
    """Milliseconds; what is written outlives the machine's boot, so this is no monotonic clock."""
    return time.time_ns() // 1_000_000


def backoff(first: float = 0.1, most: float = 10.0) -> Iterator[float]:
    """Delays that double, with jitter so that a thousand callers do not come back at once."""
    delay = first
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(delay * 2, most)
