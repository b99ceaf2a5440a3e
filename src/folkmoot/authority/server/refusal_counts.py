"""Who wasted the server's time lately: requests that were refused, by connection and by address.

A connection that keeps to the rules is never held to account for its neighbours'. One that does not
may be wrong a few times, as clients are after a restart; an address, so that nobody gains by
connecting anew, a few more. What is remembered fades, and is bounded.
"""

import time
from collections import OrderedDict
from collections.abc import Callable

#: Refusals that are forgiven at once, and how many more in a second.
OF_CONNECTION, CONNECTION_FADES = 32.0, 1.0
OF_ADDRESS, ADDRESS_FADES = 4096.0, 64.0
REMEMBERED = 65_536


class _Faults:
    """Counts that fade."""

    def __init__(self, most: float, fades: float, clock: Callable[[], float]) -> None:
        self._most, self._fades, self._clock = most, fades, clock
        self._of: OrderedDict[str, tuple[float, float]] = OrderedDict()  # count, when

    def add(self, name: str) -> None:
        self._of[name] = (self._now(name) + 1, self._clock())
        self._of.move_to_end(name)
        while len(self._of) > REMEMBERED:
            self._of.popitem(last=False)

    def too_many(self, name: str) -> bool:
        return self._now(name) > self._most

    def _now(self, name: str) -> float:
        count, when = self._of.get(name, (0.0, 0.0))
        return max(count - (self._clock() - when) * self._fades, 0.0)


class RefusalCounts:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._connections = _Faults(OF_CONNECTION, CONNECTION_FADES, clock)
        self._addresses = _Faults(OF_ADDRESS, ADDRESS_FADES, clock)
        self._proven: OrderedDict[str, None] = OrderedDict()

    def good(self, connection: str) -> None:
        """It asked for something that it may ask for."""
        self._proven[connection] = None
        self._proven.move_to_end(connection)
        while len(self._proven) > REMEMBERED:
            self._proven.popitem(last=False)

    def bad(self, connection: str, address: str) -> None:
        self._connections.add(connection)
        self._addresses.add(address)

    def must_wait(self, connection: str, address: str) -> bool:
        if self._connections.too_many(connection):
            return True
        return connection not in self._proven and self._addresses.too_many(address)
