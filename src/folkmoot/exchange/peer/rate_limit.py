"""How much of something may come in a given time: a bucket that refills. Time is an argument."""


class RateLimiter:
    """Allows `rate` a second on average and `burst` at once."""

    def __init__(self, rate: float, burst: float) -> None:
        self._rate, self._burst = rate, burst
        self._left, self._at = burst, 0.0

    def take(self, amount: float, now: float) -> bool:
        """False when that is too much, too fast."""
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        self._left -= amount
        return self._left >= 0
