"""Who may do what in a run."""

from typing import NamedTuple


class Access(NamedTuple):
    """Public keys. An empty allow-list lets everybody join."""

    allowed: frozenset[bytes] = frozenset()
    owners: frozenset[bytes] = frozenset()

    def member(self, key: bytes) -> bool:
        return not self.allowed or key in self.allowed or key in self.owners
