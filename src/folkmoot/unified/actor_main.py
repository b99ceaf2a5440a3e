"""What an actor's process does: make the worker, wait to be told to start, run it, say how it went.

The main thread makes the worker and runs its `start`; others' calls run in a thread of their own.
It stays after the work is done, to answer calls, until it is told to leave. A master that dies is
no concern of the user's code: the link (`control_link`) finds the next one.
"""

import logging
import os
import queue
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from folkmoot.core.job import Stage
from folkmoot.core.job.state import role_of
from folkmoot.unified import backends, entry, job_addresses
from folkmoot.unified.control import (
    Beat,
    Begin,
    Birth,
    Examine,
    Leave,
    Membership,
    Order,
    Status,
    Verdict,
    decode_birth,
)
from folkmoot.unified.control_link import ControlLink
from folkmoot.unified.current import ActorInfo, CurrentWorker, JobInfo, World, as_worker, be_worker
from folkmoot.unified.job_directory import JobDirectory
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.server import Server
from folkmoot.unified.substrate.inprocess import at_kill, shares_process
from folkmoot.unified.worker import SubMaster, Worker

if TYPE_CHECKING:
    from folkmoot.unified.channels import Holder

logger = logging.getLogger(__name__)
# Beats in the time after which a silent actor counts as hung.
BEATS = 5
# The exit code of one that found no master: EX_TEMPFAIL of sysexits.h.
NO_MASTER = 75


def main(argument: bytes) -> int:
    """In a process of its own, or in a thread that shares one."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    actor = ActorProcess(decode_birth(argument), lost=lambda: os._exit(NO_MASTER))
    if not shares_process():
        be_worker(actor.current)
    return actor.run()


class ActorProcess:
    """One incarnation of an actor."""

    def __init__(self, birth: Birth, lost: Callable[[], None]) -> None:
        self._birth, self._role = birth, birth.spec.roles[role_of(birth.actor)]
        self._directory = JobDirectory(birth.spec)
        self._progress = 0
        self._numbers: dict[str, Any] = {}
        self.current = self._current()
        self._me = RpcPeer.me(birth.actor, birth.incarnation)
        self._orders: queue.SimpleQueue[Begin | Leave] = queue.SimpleQueue()
        self._status = Status(actor=birth.actor, incarnation=birth.incarnation, pid=os.getpid())
        self._worker: Worker | None = None
        self._holder: Holder | None = None
        self._server: Server | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._link = ControlLink(self._me, birth.secret, self._where, self._obey, lost, birth.alone)
        at_kill(self._cut)

    def run(self) -> int:
        self._link.open()
        threading.Thread(target=self._beat, name="beat", daemon=True).start()
        try:
            with as_worker(self.current):
                self._live()
        finally:
            self._cut()
        return 0

    def _where(self) -> str:
        return job_addresses.announced() or self._birth.master

    def _live(self) -> None:
        made = entry.run(self._make)
        if not made.ok:
            self._fail(made)
        else:
            assert self._worker is not None
            self._say(stage=Stage.READY, address=self._listen(self._worker.calls_at_once))
        order = self._orders.get()
        if isinstance(order, Begin) and self._worker:
            self._work(self._worker, order)
            while not isinstance(self._orders.get(), Leave):
                pass

    def _make(self) -> None:
        self._hold_channels()
        worker = backends.make(self._role, self.current)
        worker.self_check()
        self._worker = worker

    def _hold_channels(self) -> None:
        """If the job says so."""
        birth = self._birth
        if not birth.spec.channels:
            return
        from folkmoot.unified.channels import CHANNELS, Holder

        folder = Path(birth.listen.removeprefix("unix:")).parent / CHANNELS
        self._holder = Holder(birth.spec, birth.actor, folder, birth.secret, job_addresses.own_host)
        self._holder.export(self.current)

    def _open_channel(self, name: str) -> Any:
        from folkmoot.unified.channels import open_channel

        return open_channel(self._birth.spec, self.current, name)

    def _listen(self, threads: int) -> str:
        """From now on others may call."""
        methods = self.current.methods
        server = Server(self._me, methods, self._birth.secret, threads=threads)
        self._server = server
        host = job_addresses.own_host
        return server.listen(f"tcp:{host}:0" if host else self._birth.listen)

    def _work(self, worker: Worker, order: Begin) -> None:
        self.current.world = World(order.world, order.generation)
        self._say(stage=Stage.RUNNING, generation=order.generation)
        outcome = entry.run(lambda: self._start(worker))
        if outcome.ok:
            self._say(stage=Stage.FINISH, result=outcome.result)
        else:
            self._fail(outcome)

    def _start(self, worker: Worker) -> Any:
        result = worker.start()
        if not worker.stopping:
            for name in self._role.writes:
                self.current.channel(name).finish()
        return result

    def _fail(self, outcome: entry.EntryResult) -> None:
        print(outcome.traceback or outcome.how, file=sys.stderr, flush=True)
        self._say(
            stage=Stage.FAILED,
            how=outcome.how,
            traceback=outcome.traceback,
            exit_code=outcome.exit_code,
        )

    # Orders, in the I/O thread.

    def _obey(self, order: Order) -> None:
        match order:
            case Membership():
                self._directory.update(order)
            case Begin() if self._status.stage is Stage.RUNNING:
                self._beside(lambda: self._new_world(order))
            case Begin() if self._status.stage is Stage.READY and self._orders.empty():
                self._orders.put(order)
            case Examine():
                self._beside(lambda: self._examine(order))
            case Leave():
                self._orders.put(order)
                self._beside(self._stop)

    def _beside(self, action: Callable[[], None]) -> None:
        """User code, in a thread of its own, as this worker."""

        def run() -> None:
            with as_worker(self.current):
                action()

        threading.Thread(target=run, name="hook", daemon=True).start()

    def _new_world(self, order: Begin) -> None:
        if order.generation > self.current.world.generation:
            self.current.world = World(order.world, order.generation)
            if isinstance(self._worker, SubMaster):
                self._worker.new_world()
        self._say(generation=order.generation)

    def _examine(self, order: Examine) -> None:
        if not isinstance(self._worker, SubMaster):
            self._say(verdict=Verdict(order.generation))
            return
        found: dict[str, str] = {}
        worker = self._worker
        outcome = entry.run(lambda: found.update(worker.check_child(order.world) or {}))
        if outcome.ok:
            self._say(verdict=Verdict(order.generation, found))
        else:
            self._fail(outcome)

    def _stop(self) -> None:
        self.current.stopping.set()
        if self._worker:
            outcome = entry.run(self._worker.stop)
            if not outcome.ok:
                logger.error("stop failed: %s", outcome.traceback or outcome.how)

    # What others hear.

    def _say(self, **changes: Any) -> None:
        with self._lock:
            self._status = msgspec.structs.replace(self._status, **changes)
            self.current.stage = self._status.stage
            self._link.tell(self._status)

    def _beat(self) -> None:
        every = (self._role.timeouts.silent or 30.0) / BEATS
        while not self._ended.wait(every):
            birth = self._birth
            self._link.beat(Beat(birth.actor, birth.incarnation, self._progress, self._numbers))

    def _on_progress(self, numbers: dict[str, Any]) -> None:
        self._progress += 1
        self._numbers = numbers

    def _current(self) -> CurrentWorker:
        birth, role = self._birth, self._role
        rank = birth.actor.rpartition("-")[2]
        return CurrentWorker(
            JobInfo(
                name=birth.spec.name,
                config=birth.spec.config,
                roles={name: role.size for name, role in birth.spec.roles.items()},
            ),
            ActorInfo(
                name=birth.actor,
                role=role_of(birth.actor),
                rank=int(rank) if rank.isdecimal() else -1,
                incarnation=birth.incarnation,
                node=birth.node,
                config=role.config,
            ),
            directory=self._directory,
            secret=birth.secret,
            open_channel=self._open_channel,
            on_progress=self._on_progress,
        )

    def _cut(self) -> None:
        self._ended.set()
        self._link.close()
        try:
            self.current.close()
            if self._server:
                self._server.close()
            if self._holder:
                self._holder.close()
        except Exception:  # it is being killed: what is left goes with its process
            logger.exception("%s could not close all it had", self._birth.actor)
