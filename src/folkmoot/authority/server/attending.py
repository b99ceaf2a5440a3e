"""Which process is the member with a key: one at a time, the one that came first.

A client says as which life of it it watches (a few random bytes of its process). Its own connection
may break and be made anew; another process with a copy of its key is refused, so that it cannot
push out the one that works. One whose machine lost power leaves a connection that nobody ends: once
it was silent for as long as the run bears with it, a new one may take its place.
"""

import time
from collections.abc import Callable

TAKEN = (
    "a client with this key takes part already, and stays. Every client needs a key of its own: use"
    " another --folder (or --key); if it was yours and has crashed, come again in a minute"
)


class _Member:
    def __init__(self, life: bytes, stream: object, now: float) -> None:
        self.life, self.stream, self.heard = life, stream, now


class Attending:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._members: dict[bytes, _Member] = {}

    def begin(self, key: bytes, life: bytes, stream: object, silence: float) -> bool:
        """Whether `stream` may watch as this life of the client; onlookers (b"") always may."""
        if not life:
            return True
        known, now = self._members.get(key), self._clock()
        if known and known.life != life and now - known.heard <= silence:
            return False
        self._members[key] = _Member(life, stream, now)
        return True

    def heard(self, key: bytes) -> None:
        if member := self._members.get(key):
            member.heard = self._clock()

    def end(self, key: bytes, stream: object) -> bool:
        """Whether nobody watches as the client any more."""
        member = self._members.get(key)
        if member is None or member.stream is not stream:
            return False
        del self._members[key]
        return True
