"""What a role's workers are: classes with hooks that the job calls, each when its turn is.

    __init__     make it: with the role's `config` as keyword arguments           INIT
    self_check   may raise; afterwards it can be called by others                 READY
    check_child  a sub-master looks at its workers before they start
    start        do the work, in the main thread; returning ends it               RUNNING
    status       the stage it is in
    stop         somebody wants it to end: make `start` return

`start` coming back is FINISH, an exception is FAILED. Calls from others run in a thread of their
own beside it, one at a time, from READY until the end.
"""

import logging
from collections.abc import Sequence
from typing import Any, Self

from folkmoot.core.job import Stage
from folkmoot.unified import job_addresses
from folkmoot.unified.current import ActorInfo, CurrentWorker, JobInfo, find_worker
from folkmoot.unified.rpc.errors import RpcError
from folkmoot.unified.rpc.group import RoleGroup

CHECK_SECONDS = 30.0


class Worker:
    """One worker of a role. Methods marked with `@rpc` can be called by the others."""

    current: CurrentWorker
    # How many calls of others run beside each other. With one, its methods need no locks among
    # themselves.
    calls_at_once: int = 1

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        # Here, so that a subclass need not call `__init__` to know who it is.
        worker = super().__new__(cls)
        worker.current = find_worker() or CurrentWorker.alone()
        return worker

    def self_check(self) -> None:
        """Raise if this worker cannot do its work here."""

    def status(self) -> Stage:
        return self.current.stage

    def start(self) -> Any:
        """The work. By default it answers calls until the job stops it."""
        self.current.stopping.wait()

    def stop(self) -> None:
        """Called in another thread, while `start` runs."""
        self.current.stopping.set()

    @property
    def job(self) -> JobInfo:
        return self.current.job

    @property
    def actor(self) -> ActorInfo:
        return self.current.actor

    @property
    def name(self) -> str:
        return self.actor.name

    @property
    def rank(self) -> int:
        return self.current.rank

    @property
    def size(self) -> int:
        return self.current.size

    @property
    def host(self) -> str:
        """Where the others of the job reach what it listens with: a name or address to bind to."""
        return job_addresses.host()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: loops end then."""
        return self.current.stopping.is_set()

    @property
    def log(self) -> logging.Logger:
        return logging.getLogger(self.actor.name)

    def group(self, role: str, **options: Any) -> RoleGroup:
        """The workers of a role (`CurrentWorker.group`)."""
        return self.current.group(role, **options)

    def channel(self, name: str) -> Any:
        return self.current.channel(name)

    def progress(self, **numbers: Any) -> None:
        self.current.progress(**numbers)


class SubMaster(Worker):
    """Looks after the workers of one role: `current.world` has their names."""

    def check_child(self, world: Sequence[str]) -> dict[str, str]:
        """Look at the workers before they start: those that are not fit, each with the reason."""
        calls = {
            name: self.current.worker(name, timeout=CHECK_SECONDS).call("status") for name in world
        }
        unfit = {}
        for name, call in calls.items():
            try:
                call.result()
            except RpcError as error:
                unfit[name] = str(error).partition("\n")[0]
        return unfit

    def new_world(self) -> None:
        """Its workers started anew, perhaps fewer or more of them; `current.world` has them."""

    @property
    def workers(self) -> RoleGroup:
        """Those of its role that started together."""
        actors = [self.current.worker(name) for name in self.current.world.workers]
        return RoleGroup(self.actor.role, actors)
