"""Who may do what in a run."""

from typing import NamedTuple

from folkmoot.core.coordinator import messages as m


class Access(NamedTuple):
    """Public keys. An empty allow-list lets everybody join."""

    allowed: frozenset[bytes] = frozenset()
    owners: frozenset[bytes] = frozenset()

    def member(self, key: bytes) -> bool:
        return not self.allowed or key in self.allowed or key in self.owners

    def not_allowed(self, key: bytes, message: m.ClientMessage | m.OwnerMessage) -> str | None:
        """Why the owner of a key may not say this, or None."""
        if not self.member(key):
            return "this key is not on the run's allow-list"
        if isinstance(message, m.OwnerMessage):
            return None if key in self.owners else "only an owner of the run may say that"
        return None if message.sender == key else "the message names another sender than its key"
