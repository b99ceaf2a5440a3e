"""How long a worker that fails again and again waits before its next process is made: a value.

The first failure costs no wait: most deaths have nothing to do with the next process. One that
follows soon after another waits `first` seconds, the next twice as long, up to `most`. A worker
that did not fail for `calm` seconds has shown that it can, and begins anew.
"""

from collections.abc import Iterator

import msgspec

from folkmoot.core.config import Broken, settle_floats

MAX_SECONDS = 86_400.0


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds."""

    # 0 never waits.
    first: float = 0.5
    most: float = 30.0
    calm: float = 60.0

    def __post_init__(self) -> None:
        settle_floats(self)

    def wait(self, in_a_row: int) -> float:
        """Before the process that follows so many failures, none of which was long after another.

        Doubled one by one: a power of a large number would be no float any more.
        """
        if in_a_row < 2 or self.first == 0:
            return 0.0
        seconds = self.first
        for _ in range(in_a_row - 2):
            if seconds >= self.most:
                break
            seconds *= 2
        return min(seconds, self.most)

    def rules(self) -> Iterator[Broken]:
        for name in ("first", "most", "calm"):
            if not 0 <= getattr(self, name) <= MAX_SECONDS:
                yield Broken(name, "must be from 0 to 86,400 seconds")
        if 0 <= self.most < self.first:
            yield Broken("most", f"is less than the {self.first:g} seconds of `first`")
