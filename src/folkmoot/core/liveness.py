"""Who was heard lately. Time is an argument; nothing here is journaled.

After a restart everybody known gets a full period to speak again: silence of the coordinator is
not silence of the participants.
"""

from collections.abc import Iterable
from itertools import takewhile


class Liveness:
    """When each participant counts as lost, unless it is heard before."""

    def __init__(self, expiry_ms: int) -> None:
        self.expiry_ms = expiry_ms
        self._expires: dict[str, int] = {}

    def heard(self, id: str, now: int) -> None:
        # Kept in the order of expiry: a participant that is heard moves to the end.
        self._expires.pop(id, None)
        self._expires[id] = now + self.expiry_ms

    def forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            self._expires.pop(id, None)

    def expired(self, now: int) -> tuple[str, ...]:
        """Everybody whose time has come, once: they are forgotten."""
        due = takewhile(lambda entry: entry[1] <= now, self._expires.items())
        lost = tuple(sorted(id for id, _ in due))
        self.forget(lost)
        return lost

    def next_expiry(self) -> int | None:
        """When to look again."""
        return next(iter(self._expires.values()), None)
