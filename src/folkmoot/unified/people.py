"""Who is in the job and where, as the master told it last."""

import threading
import time

from folkmoot.core.job import JobSpec
from folkmoot.unified.control import People


class PeopleDirectory:
    """A directory for calls (`rpc.directory`)."""

    def __init__(self, spec: JobSpec) -> None:
        self._roles: dict[str, tuple[str, ...]] = dict.fromkeys(spec.roles, ())
        self._addresses: dict[str, str] = {}
        self._changed = threading.Condition()

    def update(self, people: People) -> None:
        with self._changed:
            self._roles, self._addresses = people.roles, people.addresses
            self._changed.notify_all()

    def find(self, actor: str, not_at: str | None = None, wait: float = 0.0) -> str | None:
        until = time.monotonic() + wait
        with self._changed:
            while (address := self._addresses.get(actor)) is None or address == not_at:
                if not self._changed.wait(until - time.monotonic()):
                    return None
            return address

    def members(self, role: str) -> list[str] | None:
        with self._changed:
            return list(self._roles[role]) if role in self._roles else None
