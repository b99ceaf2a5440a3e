"""What a job is made of: roles, what each needs, what may go wrong with it and how often.

One strict value that the builder and the TOML file both make (`[roles.rollout]`). Times are in
seconds. What cannot be (a role that is not there, more workers than the cluster holds, roles that
are to be together and apart) is refused with a sentence, before anything is started.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from folkmoot.core.config import Broken, settle_floats
from folkmoot.core.job.backoff import Backoff
from folkmoot.core.job.placement import Amounts, Bundle, ClusterSize, Gang, Resource, Strategy, add

MAX_WORKERS = 65_536
MAX_SECONDS = 4e6
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_OBJECT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")

Backend = Literal["worker", "elastic", "self_loop", "trainer", "custom"]
#: What starts anew when a worker fails: it alone, its role, its role and those that depend on it,
#: or the job.
FailureDomain = Literal["worker", "role", "dependents", "job"]


class RoleBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How many failures are made good before the job fails; 0 makes none good."""

    # Of one worker, and of all workers of the role together. Those who only suffered from another's
    # failure are not charged.
    worker: int = 3
    role: int = 10

    def rules(self) -> Iterator[Broken]:
        yield from _counts(self, ("worker", "role"), 0)


class JobBudget(msgspec.Struct, frozen=True, kw_only=True):
    # Failures on one node after which nothing is placed there any more; 0 never gives one up.
    node: int = 5
    # Failures of the whole job.
    job: int = 30

    def rules(self) -> Iterator[Broken]:
        yield from _counts(self, ("node", "job"), 0)


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds after which a worker counts as hung; 0 waits for ever."""

    # From its creation until it is ready; for a sub-master's check of its children; from `start`
    # until it runs.
    ready: float = 300.0
    check: float = 300.0
    start: float = 60.0
    # While it runs: with no sign of life of its process, and with no progress of its code (told by
    # `progress()`; 0, the default, asks for none).
    silent: float = 30.0
    hang: float = 0.0
    # From `stop` until it is killed. Never 0.
    stop: float = 10.0

    def __post_init__(self) -> None:
        settle_floats(self)

    def rules(self) -> Iterator[Broken]:
        for name in ("ready", "check", "start", "silent", "hang"):
            if not 0 <= getattr(self, name) < MAX_SECONDS:
                yield Broken(name, "must be from 0 (wait for ever) to 4,000,000 seconds")
        if not 0 < self.stop < MAX_SECONDS:
            yield Broken("stop", "must be more than 0 and less than 4,000,000 seconds")


class RoleSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One role: `total` workers that run the same entry."""

    # `module:Class`, `module:function`, or a script and its arguments: `train.py --lr 0.1`.
    entry: str
    backend: Backend = "worker"
    # 0 is `max` where that is given, and else 1.
    total: int = 0
    # Elastic roles go on with `min` workers and grow back to `total`; `max` bounds scaling.
    # 0 is `total` for `min`, and for `max` of an elastic role; other roles then have no bound.
    min: int = 0
    max: int = 0
    # How long an elastic role that has `min` waits for those for whom there is no room yet.
    join_wait: float = 5.0
    # `module:Class` of the sub-master. An elastic role has one in any case.
    sub_master: str = ""
    # Whether the sub-master checks its workers before they start.
    check: bool = True
    # The job is finished when all drivers are.
    driver: bool = True
    resource: Resource = Resource()
    env: dict[str, str] = {}
    # What the worker is made with.
    config: dict[str, Any] = {}
    args: tuple[str, ...] = ()
    # Workers that share a bundle of resources, and so a node.
    per_group: int = 1
    placement: Strategy = "PACK"
    # Roles that run before this one starts, and whose failures may reach it.
    depends_on: tuple[str, ...] = ()
    # None is `role` for elastic roles, and else `worker`.
    failure_domain: FailureDomain | None = None
    # What an exception in the user's code leads to.
    on_error: Literal["restart", "fail"] = "restart"
    budget: RoleBudget = RoleBudget()
    # How long a worker that fails again waits before it is made again.
    backoff: Backoff = Backoff()
    timeouts: Timeouts = Timeouts()
    # The channels it takes from and gives to.
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        settle_floats(self)

    @property
    def size(self) -> int:
        """How many workers it begins with."""
        return self.total or self.max or 1

    @property
    def elastic(self) -> bool:
        return self.backend == "elastic"

    @property
    def least(self) -> int:
        """With how many it goes on."""
        return (self.min or self.size) if self.elastic else self.size

    @property
    def most(self) -> int:
        """To how many it may be scaled."""
        return self.max or (self.size if self.elastic else MAX_WORKERS)

    @property
    def has_sub_master(self) -> bool:
        return self.elastic or bool(self.sub_master)

    @property
    def domain(self) -> FailureDomain:
        return self.failure_domain or ("role" if self.elastic else "worker")

    @property
    def runs_command(self) -> bool:
        """Whether the entry is a script and its arguments, rather than `module:name`."""
        return not _OBJECT.fullmatch(self.entry)

    def rules(self) -> Iterator[Broken]:
        yield from _counts(self, ("total", "min", "max"), 0)
        yield from _counts(self, ("per_group",), 1)
        yield from self._entry_rules()
        yield from self._size_rules()
        if not 0 <= self.join_wait < MAX_SECONDS:
            yield Broken("join_wait", "must be from 0 to 4,000,000 seconds")
        for name in sorted({*self.reads} & {*self.writes}):
            yield Broken("reads", f"'{name}' is also in writes: a role cannot wait for itself")

    def _entry_rules(self) -> Iterator[Broken]:
        if not self.entry.strip():
            yield Broken("entry", "must name what to run: module:name, or a script")
        elif _DOTTED.fullmatch(self.entry) and not self.entry.endswith(".py"):
            module, _, name = self.entry.rpartition(".")
            yield Broken("entry", f"is neither module:name nor a script; write {module}:{name}")
        if self.sub_master and not _OBJECT.fullmatch(self.sub_master):
            yield Broken("sub_master", "must be module:Class")
        if self.args and not self.runs_command:
            yield Broken("args", "are for a script; what a class or function needs is in config")

    def _size_rules(self) -> Iterator[Broken]:
        if self.min and not self.elastic:
            yield Broken("min", "is for elastic roles: only they go on with fewer workers")
        if self.min > self.size:
            yield Broken("min", f"is more than the {self.size} workers the role has")
        if 0 < self.max < self.size:
            yield Broken("max", f"is less than the {self.size} workers the role has")
        if self.per_group > 0 and self.size % self.per_group:
            yield Broken(
                "per_group", f"must divide the {self.size} workers of the role without rest"
            )


class ChannelSpec(msgspec.Struct, frozen=True, kw_only=True):
    # Records that may wait in it before a writer has to.
    capacity: int = 1024
    # Bytes of theirs.
    size: int = 256 * 1024 * 1024
    # Seconds until a record that was taken and not acknowledged is given to another.
    lease: float = 60.0
    # The role whose rank 0 holds it; "" leaves that to the job.
    holder: str = ""

    def __post_init__(self) -> None:
        settle_floats(self)

    def rules(self) -> Iterator[Broken]:
        if not 1 <= self.capacity < 2**31:
            yield Broken("capacity", f"must be from 1 to {2**31 - 1}")
        if not 4096 <= self.size < 2**53:
            yield Broken("size", "must be 4096 bytes or more")
        if not 0 < self.lease < MAX_SECONDS:
            yield Broken("lease", "must be more than 0 and less than 4,000,000 seconds")


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    roles: dict[str, RoleSpec]
    channels: dict[str, ChannelSpec] = {}
    # Groups of roles whose workers share nodes: the k-th group of each is placed with the k-th of
    # the others.
    colocate: tuple[tuple[str, ...], ...] = ()
    cluster: ClusterSize | None = None
    env: dict[str, str] = {}
    config: dict[str, Any] = {}
    budget: JobBudget = JobBudget()
    # An error of a worker is not its own fault when another one died so shortly before or after.
    blame_grace: float = 1.0
    # How long to wait for room; 0 waits for ever.
    place_timeout: float = 300.0

    def __post_init__(self) -> None:
        settle_floats(self)

    @property
    def gangs(self) -> tuple[Gang, ...]:
        """What is placed as one, or not at all: a role, or the roles of a co-location."""
        return self.gangs_of({})

    def gangs_of(self, totals: Mapping[str, int]) -> tuple[Gang, ...]:
        """The gangs of roles that were scaled to these totals."""
        together = {role: group for group in self.colocate for role in group}
        groups = dict.fromkeys(together.get(role, (role,)) for role in self.roles)
        return tuple(_gang(self, group, totals.get(group[0], 0)) for group in groups)

    def needs(self, actors: Iterable[str]) -> Amounts:
        """What these workers need together."""
        total: Amounts = {}
        for actor in actors:
            add(total, self.roles[actor.rpartition("-")[0]].resource.amounts())
        return total

    def rules(self) -> Iterator[Broken]:
        if not self.roles:
            yield Broken("roles", "must hold at least one role")
        if self.roles and not any(role.driver for role in self.roles.values()):
            yield Broken("roles", "need a driver: the job is finished when its drivers are")
        for name in self.roles:
            if not _NAME.fullmatch(name):
                yield Broken("roles", f"'{name}' must be letters, digits and _ (up to 64)")
        for field in ("blame_grace", "place_timeout"):
            if not 0 <= getattr(self, field) < MAX_SECONDS:
                yield Broken(field, "must be from 0 to 4,000,000 seconds")
        yield from self._dependencies()
        yield from self._channels()
        placeable = list(self._colocation())
        yield from placeable
        sound = not placeable and all(role.per_group > 0 for role in self.roles.values())
        if sound and self.cluster is not None:
            yield from (Broken("cluster", reason) for reason in self.cluster.lacks(self.gangs))

    def _dependencies(self) -> Iterator[Broken]:
        for name, role in self.roles.items():
            for other in role.depends_on:
                if other not in self.roles:
                    yield _unknown("roles", f"{name} depends on the role", other, self.roles)
        if loop := _loop({name: role.depends_on for name, role in self.roles.items()}):
            yield Broken("roles", f"depend on each other in a circle: {' -> '.join(loop)}")

    def _channels(self) -> Iterator[Broken]:
        for name, role in self.roles.items():
            for channel in (*role.reads, *role.writes):
                if channel not in self.channels:
                    yield _unknown("roles", f"{name} uses the channel", channel, self.channels)
        for name, spec in self.channels.items():
            if not _NAME.fullmatch(name):
                yield Broken("channels", f"'{name}' must be letters, digits and _ (up to 64)")
            if spec.holder and spec.holder not in self.roles:
                yield _unknown("channels", f"{name} is held by the role", spec.holder, self.roles)

    def _colocation(self) -> Iterator[Broken]:
        seen: set[str] = set()
        for group in self.colocate:
            known = [role for role in group if role in self.roles]
            for role in group:
                if role not in self.roles:
                    yield _unknown("colocate", "names the role", role, self.roles)
                elif role in seen:
                    yield Broken("colocate", f"'{role}' stands twice: name it in one group")
                seen.add(role)
            if len(group) < 2:
                yield Broken("colocate", "a group needs two roles or more")
            yield from self._one_group(known)

    def _one_group(self, group: list[str]) -> Iterator[Broken]:
        specs = [self.roles[role] for role in group]
        counts = [spec.size // max(spec.per_group, 1) for spec in specs]
        if len(set(counts)) > 1:
            told = ", ".join(f"{r} has {n}" for r, n in zip(group, counts, strict=True))
            yield Broken(
                "colocate", f"needs roles with equally many groups (total / per_group): {told}"
            )
        if len({spec.placement for spec in specs}) > 1:
            told = ", ".join(f"{r} says {s.placement}" for r, s in zip(group, specs, strict=True))
            yield Broken("colocate", f"needs roles with one placement: {told}")


def _gang(spec: JobSpec, group: tuple[str, ...], total: int) -> Gang:
    first = spec.roles[group[0]]
    bundles = []
    for k in range((total or first.size) // first.per_group):
        widths = ((name, spec.roles[name].per_group) for name in group)
        actors = tuple(f"{name}-{k * n + i}" for name, n in widths for i in range(n))
        bundles.append(Bundle(actors, spec.needs(actors)))
    return Gang("+".join(group), first.placement, tuple(bundles))


def _counts(struct: msgspec.Struct, names: Iterable[str], least: int) -> Iterator[Broken]:
    for name in names:
        if not least <= getattr(struct, name) <= MAX_WORKERS:
            yield Broken(name, f"must be from {least} to {MAX_WORKERS}")


def _unknown(field: str, what: str, name: str, known: Iterable[str]) -> Broken:
    by_lower = {role.lower(): role for role in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    hint = f" (did you mean '{by_lower[close[0]]}'?)" if close else ""
    return Broken(field, f"{what} '{name}', which is not there{hint}")


def _loop(edges: dict[str, tuple[str, ...]]) -> list[str]:
    """A circle in the graph, if there is one."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in done:
            return []
        found = next((c for o in edges.get(name, ()) if (c := visit(o, [*path, name]))), [])
        done.add(name)
        return found

    return next((circle for name in edges if (circle := visit(name, []))), [])
