"""Everything that a PrimeMaster knows about its job, as one frozen value.

A new PrimeMaster that reads it back continues where the last one was: who is alive and in which
incarnation, who was told what, what every worker, role, node and the job have failed so far, and
who is to blame.
"""

from enum import StrEnum
from itertools import count, takewhile
from typing import Literal

import msgspec

from folkmoot.core.job.config import JobSpec, RoleSpec

SUB_MASTER = "master"


class Phase(StrEnum):
    """Of the job."""

    INIT = "INIT"
    READY = "READY"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"


class Stage(StrEnum):
    """Of an actor."""

    INIT = "INIT"
    READY = "READY"
    RUNNING = "RUNNING"
    FINISH = "FINISH"
    FAILED = "FAILED"


Kind = Literal["died", "silent", "error", "unfit", "node gone"]
Ending = Literal["finished", "failed", "stopped"]


def actor_id(role: str, rank: int) -> str:
    """`rollout-0`."""
    return f"{role}-{rank}"


def sub_master_id(role: str) -> str:
    """`rollout-master`."""
    return f"{role}-{SUB_MASTER}"


def role_of(actor: str) -> str:
    return actor.rpartition("-")[0]


def is_sub_master(actor: str) -> bool:
    return actor.rpartition("-")[2] == SUB_MASTER


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """A worker or a sub-master, and its process: the one of this incarnation."""

    id: str
    stage: Stage = Stage.INIT
    # 0 before its first process. Only what the process of this incarnation says is heard.
    incarnation: int = 0
    node: str = ""
    # Whether there may be a process of this incarnation.
    alive: bool = False
    # Whether it has a place. Sub-masters need none.
    placed: bool = False
    # Why its process was told to go, if it was, and the number of the failure it goes for.
    doomed: str = ""
    doomed_by: int = 0
    # The generation of its role that it was told to start in, and the one that it runs.
    started: int = 0
    generation: int = 0
    # Failures it was charged with.
    failures: int = 0
    # Of these, those that followed soon after one another; when the last one was seen; and when its
    # next process may be made, if that waits (milliseconds).
    in_a_row: int = 0
    failed_at: int = 0
    not_before: int | None = None
    # When what is awaited from it is overdue (milliseconds), if ever.
    deadline: int | None = None
    # It leaves for good: its role was scaled down, or its budget is used up.
    retired: bool = False
    # What its `start` gave back, when it is FINISH; why, when it is FAILED.
    result: str = ""

    @property
    def role(self) -> str:
        return role_of(self.id)

    @property
    def rank(self) -> int:
        return int(self.id.rpartition("-")[2])

    @property
    def is_sub_master(self) -> bool:
        return is_sub_master(self.id)

    @property
    def fresh(self) -> bool:
        """Whether its process has not begun to work, so that there is nothing to start anew."""
        return self.stage in (Stage.INIT, Stage.READY) and not self.started and not self.doomed


class Role(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    # Workers it should have: the spec's, or what it was scaled to.
    total: int
    # Counts how often its workers were formed into a world. Whoever starts is told of it.
    generation: int = 0
    # Its workers wait for each other; then its sub-master checks them; then they start.
    forming: bool = True
    checking: bool = False
    checked: bool = False
    # The workers of this generation, by rank.
    world: tuple[str, ...] = ()
    # Until when an elastic role that has enough workers waits for more; 0 when that is over.
    join_deadline: int | None = None
    failures: int = 0


class Placing(msgspec.Struct, frozen=True):
    """A gang's workers that wait for a place, until when (None: as long as it takes)."""

    actors: tuple[str, ...]
    until: int | None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A first cause: who failed, when that was seen, and how."""

    number: int
    # "" when it was a node.
    actor: str
    incarnation: int
    node: str
    kind: Kind
    how: str
    at: int
    exit_code: int = 1


class State(msgspec.Struct, frozen=True, kw_only=True):
    spec: JobSpec
    phase: Phase = Phase.INIT
    # Whether the owner has asked to begin.
    begun: bool = False
    actors: dict[str, Actor] = {}
    roles: dict[str, Role] = {}
    # Gangs that places were asked for, and those that still wait for some.
    gangs: tuple[str, ...] = ()
    placing: dict[str, Placing] = {}
    # Failures charged to nodes.
    node_failures: dict[str, int] = {}
    # Failures charged to the job, and how many there ever were.
    failures: int = 0
    seen: int = 0
    # A failure restarts the whole job; how often one did.
    restarting: bool = False
    restarts: int = 0
    # The newest first causes, and the errors that may yet turn out to be another's fault.
    blamed: tuple[Failure, ...] = ()
    suspects: tuple[Failure, ...] = ()
    # How it ends, once that is known.
    ending: Ending | None = None
    exit_code: int | None = None
    reason: str = ""

    @property
    def working(self) -> bool:
        """Whether it goes on, or has yet to begin."""
        return self.phase in (Phase.INIT, Phase.READY, Phase.RUNNING)

    @property
    def avoided(self) -> tuple[str, ...]:
        """The nodes whose budget is used up: nothing is placed there any more."""
        limit = self.spec.budget.node
        return tuple(sorted(n for n, count in self.node_failures.items() if 0 < limit < count))

    def spec_of(self, actor: str) -> RoleSpec:
        return self.spec.roles[role_of(actor)]

    def workers(self, role: str) -> list[Actor]:
        """The workers of a role by rank, without those that leave for good."""
        ids = takewhile(self.actors.__contains__, (actor_id(role, k) for k in count()))
        return [actor for actor in map(self.actors.__getitem__, ids) if not actor.retired]

    def sub_master(self, role: str) -> Actor | None:
        return self.actors.get(sub_master_id(role))

    def process(self, id: str, incarnation: int) -> Actor | None:
        """The actor, if it is alive in this incarnation."""
        actor = self.actors.get(id)
        return actor if actor and actor.alive and actor.incarnation == incarnation else None

    def living(self) -> list[Actor]:
        return [actor for actor in self.actors.values() if actor.alive]

    def least(self, role: str) -> int:
        """With how many workers a role goes on."""
        spec, total = self.spec.roles[role], self.roles[role].total
        return min(spec.least, total) if spec.elastic else total

    def runs(self, role: str) -> bool:
        """Whether all who should have started have."""
        master = self.sub_master(role)
        members = [self.actors[id] for id in self.roles[role].world]
        at_work = (Stage.RUNNING, Stage.FINISH)
        return (
            not self.roles[role].forming
            and (master is None or master.stage in at_work)
            and all(member.stage in at_work for member in members)
        )

    def finished(self, role: str) -> bool:
        """Whether its sub-master is, or all its workers are."""
        found, master = self.roles[role], self.sub_master(role)
        if master is not None and master.stage == Stage.FINISH:
            return True
        done = all(self.actors[id].stage == Stage.FINISH for id in found.world)
        return done and bool(found.world) and not found.forming
