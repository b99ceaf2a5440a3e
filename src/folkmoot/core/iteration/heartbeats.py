"""Who is silent, by progress that was seen here. No clock of another machine is ever read.

A heartbeat that changes between two looks is alive, whatever it says; one that does not change for
`timeout` of our own clock is silent, until it changes again.
"""

from collections.abc import Sequence

from folkmoot.core.iteration.record import is_beating


class Heartbeats:
    """What one rank has seen of all the others."""

    def __init__(self, timeout: int) -> None:
        self._timeout = timeout
        self._seen: dict[int, tuple[bytes | None, int]] = {}  # the value, and since when it is that

    def look(self, values: Sequence[bytes | None], now: int) -> None:
        """The heartbeats of ranks 0, 1, … as they are at `now` (milliseconds that only grow)."""
        for rank, value in enumerate(values):
            if rank not in self._seen or self._seen[rank][0] != value:
                self._seen[rank] = (value, now)

    def silent(self, now: int) -> tuple[int, ...]:
        """Ranks that were here and are not any more."""
        return tuple(
            rank
            for rank, (value, since) in self._seen.items()
            if value is not None and (now - since >= self._timeout or not is_beating(value))
        )

    def next_silence(self, now: int) -> int:
        """How long nobody else can be silent, for someone who looks just then."""
        left = (self._timeout - (now - since) for _, since in self._seen.values())
        return min((ms for ms in left if ms > 0), default=self._timeout)
