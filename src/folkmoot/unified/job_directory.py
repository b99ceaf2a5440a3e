"""Who is in the job and where, as the master told it last."""

from folkmoot.core.job import JobSpec
from folkmoot.unified.control import Membership
from folkmoot.unified.rpc.directory import Addresses


class JobDirectory(Addresses):
    """A directory for calls (`rpc.directory`)."""

    def __init__(self, spec: JobSpec) -> None:
        super().__init__()
        self._roles: dict[str, tuple[str, ...]] = dict.fromkeys(spec.roles, ())

    def update(self, membership: Membership) -> None:
        self._roles = membership.roles
        self.replace(membership.addresses)

    def members(self, role: str) -> list[str] | None:
        roles = self._roles
        return list(roles[role]) if role in roles else None
