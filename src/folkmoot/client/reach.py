"""Which members of the epoch a client cannot reach: told by name, once, until it reaches them.

A line that is down for a moment is no news; one that does not come about for `PATIENCE` is. What is
known goes to the run with the signs of life, so that the owner's screen shows it too.
"""

import time
from collections.abc import Callable

from folkmoot.client import events
from folkmoot.core.identity import short
from folkmoot.exchange.peer import Connected, DialFailed, PeerEvent
from folkmoot.exchange.peer.address import decode_address
from folkmoot.host.event_log import Record

# Seconds of failing until it is told: two who begin at the same time miss each other at first.
PATIENCE = 5.0


class Reach:
    def __init__(
        self,
        emit: Callable[[Record], None],
        changed: Callable[[tuple[bytes, ...]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._emit, self._changed, self._clock = emit, changed, clock
        self._members: dict[bytes, bytes] = {}
        self._failing: dict[bytes, float] = {}  # since when
        self._told: set[bytes] = set()

    def members(self, members: dict[bytes, bytes]) -> None:
        """Who should be reached, and where."""
        gone = self._members.keys() - members.keys()
        self._members = members
        for peer in gone:
            self._forget(peer)

    def noticed(self, event: PeerEvent) -> None:
        match event:
            case Connected(peer):
                if peer in self._told:
                    self._emit(events.PeerReached(short(peer)))
                self._forget(peer)
            case DialFailed(peer, reason) if peer in self._members and peer not in self._told:
                since = self._failing.setdefault(peer, self._clock())
                if self._clock() - since >= PATIENCE:
                    self._told.add(peer)
                    where = told_address(self._members[peer])
                    self._emit(events.PeerUnreachable(short(peer), where, reason))
                    self._changed(tuple(sorted(self._told)))

    def _forget(self, peer: bytes) -> None:
        self._failing.pop(peer, None)
        if peer in self._told:
            self._told.discard(peer)
            self._changed(tuple(sorted(self._told)))


def told_address(address: bytes) -> str:
    """Where a peer said that it is reached, in words."""
    try:
        known = decode_address(address)
    except ValueError:
        return "no address"
    return ", ".join([*known.direct, *([known.relay] if known.relay else [])]) or "no address"
