"""How much goes through a channel and how long it lies there: totals, and the last seconds."""

from collections import deque

WINDOW = 5_000  # milliseconds


class Metrics:
    """Counts in steps of a tenth of the window, so that old ones can be forgotten."""

    def __init__(self) -> None:
        self.put = self.acked = 0
        self._steps: deque[_Step] = deque()

    def count_put(self, records: int, now: int) -> None:
        self.put += records
        self._step(now).put += records

    def count_acked(self, records: int, now: int) -> None:
        self.acked += records
        self._step(now).acked += records

    def count_wait(self, records: int, wait: int, now: int) -> None:
        step = self._step(now)
        step.delivered += records
        step.waited += records * wait
        step.longest = max(step.longest, wait)

    def rates(self, now: int) -> tuple[float, float]:
        """Records put and acked a second, lately."""
        self._forget(now)
        begun = self._steps[0].at if self._steps else now
        seconds = max(now - begun, WINDOW // 10) / 1000
        put = sum(step.put for step in self._steps)
        return put / seconds, sum(step.acked for step in self._steps) / seconds

    def waits(self, now: int) -> tuple[float, float]:
        """Milliseconds from put to delivery, lately: on average, and the longest."""
        self._forget(now)
        delivered = sum(step.delivered for step in self._steps)
        waited = sum(step.waited for step in self._steps)
        longest = max((step.longest for step in self._steps), default=0)
        return waited / max(delivered, 1), float(longest)

    def _step(self, now: int) -> "_Step":
        if not self._steps or now - self._steps[-1].at >= WINDOW // 10:
            self._forget(now)
            self._steps.append(_Step(now))
        return self._steps[-1]

    def _forget(self, now: int) -> None:
        while self._steps and now - self._steps[0].at > WINDOW:
            self._steps.popleft()


class _Step:
    __slots__ = ("acked", "at", "delivered", "longest", "put", "waited")

    def __init__(self, at: int) -> None:
        self.at = at
        self.put = self.acked = self.delivered = self.waited = self.longest = 0
