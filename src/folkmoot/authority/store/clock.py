"""The time of a run that nobody keeps alone: carried on by those who follow it.

Milliseconds since the run began. A client's clock goes on from the newest record it has seen being
made, by its own monotonic clock; no two wall clocks are ever compared. It stands while no client
runs, and whoever comes late and makes the first record sets everybody back to its time.

- A clock is never more than `LEAD` ahead of the newest record carried on: so much is allowed for
  the way of a record, which would else slow the run's time down.
- A record may be ahead of what the records before led to expect by `TOLERANCE` and one hundredth of
  the time that passed, all records together. One that is further ahead is refused (`plausible`), so
  somebody who hurries the run along gains half a minute and one percent.
- Who has just come does not know how old the newest record is: the first one that it sees being
  made is as good as any.
"""

from collections.abc import Callable

LEAD = 1_000
TOLERANCE = 30_000
DRIFT = 0.01


class RunClock:
    """Milliseconds of the run, by a monotonic clock in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        # Milliseconds of the run when the monotonic clock was at 0: by our clock, and the earliest
        # that a record since `_since` led to expect.
        self._offset = self._earliest = 0.0
        self._since = 0.0
        self._settled = False

    def begin(self, time: int) -> None:
        """Go on from a record of unknown age."""
        self._offset = time - self._monotonic() * 1000
        self._settled = False

    def now(self) -> int:
        return round(self._offset + self._monotonic() * 1000)

    def plausible(self, time: int) -> bool:
        here = self._monotonic()
        drift = (here - self._since) * 1000 * DRIFT
        return not self._settled or time - here * 1000 <= self._earliest + TOLERANCE + drift

    def saw(self, time: int) -> None:
        """A record of this time was just made."""
        here = self._monotonic()
        told = time - here * 1000
        self._offset = min(max(self._offset, told), told + LEAD)
        if not self._settled or told < self._earliest:
            self._earliest, self._since, self._settled = told, here, True
