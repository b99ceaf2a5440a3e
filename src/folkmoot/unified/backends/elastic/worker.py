"""ElasticWorker: brings the world up around the user's code, and runs that unchanged."""

import os
import time
from typing import Any

import msgspec

from folkmoot.authority.store.kv.tcp_server import listen
from folkmoot.core.job import RoleSpec
from folkmoot.core.job.state import sub_master_id
from folkmoot.unified.backends.elastic.meeting import Meeting, environment
from folkmoot.unified.rpc.errors import WorkerDied
from folkmoot.unified.worker import Worker

#: What a sub-master calls. They are no methods of the user's class.
INTRODUCE, HOLD_STORE, CHECK = "elastic.introduce", "elastic.hold_store", "elastic.check"
MEET = "meet"
# Seconds for a world to meet.
MEETING = 300.0
_in_process: set[str] = set()


class ElasticWorker(Worker):
    """Around the worker of the role's entry."""

    def __init__(self, inner: Worker, role: RoleSpec) -> None:
        self.inner, self._role = inner, role
        self.calls_at_once = inner.calls_at_once
        self._store: Any = None
        self._port = 0
        methods = self.current.methods
        methods.export(INTRODUCE, lambda: self.actor.node, inline=True)
        methods.export(HOLD_STORE, self._hold_store, inline=True)
        methods.export(CHECK, self._check)

    def self_check(self) -> None:
        """Torch must be there and able to talk; it is imported now, not while others wait."""
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_gloo_available():
            raise RuntimeError(
                "this torch has no torch.distributed with gloo: install one that has"
            )
        self.inner.self_check()

    def start(self) -> Any:
        _take_process(self.name)
        meeting = self._meet()
        os.environ.update(
            environment(
                meeting,
                job=self.job.name,
                role=self.actor.role,
                rank=self.rank,
                generation=self.current.world.generation,
                restarts=self._role.budget.role,
            )
        )
        _share_cores(meeting.nodes.count(meeting.nodes[self.rank]))
        return self.inner.start()

    def stop(self) -> None:
        super().stop()
        self.inner.stop()

    def _meet(self) -> Meeting:
        """Ask the sub-master, or the next one if it dies on it."""
        until, world = time.monotonic() + MEETING, self.current.world
        while True:
            left = until - time.monotonic()
            master = self.current.worker(
                sub_master_id(self.actor.role), timeout=left, patience=MEETING
            )
            try:
                met: Meeting = master.call(MEET, world.workers, world.generation).result()
                return met
            except WorkerDied:
                if left < 0:
                    raise

    def _hold_store(self) -> tuple[str, int]:
        """Where the ranks of this one's world meet; as rank 0."""
        if self._store is None:
            self._store, url = listen(self.host, 0)
            self._port = int(url.rpartition(":")[2])
        return self.host, self._port

    def _check(self, order: "CheckOrder") -> float:
        from folkmoot.unified.backends.elastic.node_check import check

        return check(**msgspec.structs.asdict(order))


class CheckOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's part in one group's check: where it meets, and who it is there."""

    host: str
    port: int
    key: str
    index: int
    size: int
    seconds: float


def _share_cores(local: int) -> None:
    """As torchrun does: ranks that share a machine must not each take all of its cores."""
    import torch

    if local > 1:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        torch.set_num_threads(int(given))  # it was imported before it could read that


def _take_process(name: str) -> None:
    """Torch has one world in a process, and so have the variables."""
    _in_process.add(name)
    if len(_in_process) > 1:
        raise RuntimeError(
            "an elastic role needs a process for each worker: run it on local processes or on Ray"
        )
