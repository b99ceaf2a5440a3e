"""What code that runs in a job can know and reach: `current_worker()`.

    me = current_worker()
    me.actor.rank, me.actor.size, me.job.config["lr"]
    me.group("rollout").call("load", weights).result()
    me.channel("samples").put(sample)

In a process of its own, every thread finds its worker. Where several workers share a process, each
is found from its own threads and calls, and a thread that user code starts needs
`contextvars.copy_context().run`.
"""

import contextlib
import contextvars
import difflib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from folkmoot.core.job import Stage
from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.directory import AddressBook, Directory
from folkmoot.unified.rpc.group import RoleActor, RoleGroup
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.proxy import proxy

T = TypeVar("T")
ALONE = b"nobody else is here"


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The job that this worker is part of."""

    name: str
    config: dict[str, Any] = {}
    # How many workers each role began with.
    roles: dict[str, int] = {}


class ActorInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Who this worker is."""

    name: str
    role: str
    rank: int = 0  # -1 for a sub-master
    # Which process of this name it is: 1 for the first.
    incarnation: int = 1
    node: str = ""
    config: dict[str, Any] = {}


class World(msgspec.Struct, frozen=True):
    """The workers of the role that started together, and which start of theirs this is."""

    workers: tuple[str, ...] = ()
    generation: int = 0


class CurrentWorker:
    """One worker's view of its job. Made by what runs the worker, and asked by its code."""

    def __init__(
        self,
        job: JobInfo,
        actor: ActorInfo,
        *,
        directory: Directory,
        secret: bytes,
        open_channel: Callable[[str], Any] | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.job, self.actor = job, actor
        self.methods = RemoteMethods(actor.name)
        self.world = World()  # nobody yet: it is called before it starts
        self.stage = Stage.INIT
        self.stopping = threading.Event()
        self.directory, self.secret = directory, secret
        self._open_channel = open_channel
        self._on_progress = on_progress
        self._clients: dict[tuple[str, float], RpcClient] = {}
        self._channels: dict[str, Any] = {}
        self._lock = threading.Lock()

    @classmethod
    def alone(cls, config: dict[str, Any] | None = None) -> "CurrentWorker":
        """A worker without a job: for tests of its code."""
        job = JobInfo(name="alone", config=config or {}, roles={"worker": 1})
        actor = ActorInfo(name="worker-0", role="worker")
        return cls(job, actor, directory=AddressBook(), secret=ALONE)

    @property
    def rank(self) -> int:
        """Its place among those it started with; before that, the one it was made for."""
        workers = self.world.workers
        name = self.actor.name
        return workers.index(name) if name in workers else self.actor.rank

    @property
    def size(self) -> int:
        """How many it started with; before that, how many the role began with."""
        return len(self.world.workers) or self.job.roles.get(self.actor.role, 1)

    def group(
        self,
        role: str,
        *,
        optional: bool = False,
        timeout: float | None = None,
        patience: float = 0.0,
    ) -> RoleGroup:
        """The workers of a role. An `optional` role may have none, or not exist.

        Calls that take longer than `timeout` fail and say where they hang. A call to a worker that
        is gone fails at once, or waits up to `patience` seconds for it to be back.
        """
        names = self.directory.members(role)
        if not names:
            if not optional:
                raise ValueError(_no_workers(role, names is not None, self.job.roles))
            names = []
        actors = [
            RoleActor(self._client(name, patience), rank, timeout)
            for rank, name in enumerate(names)
        ]
        return RoleGroup(role, actors)

    def worker(
        self, name: str, *, timeout: float | None = None, patience: float = 0.0
    ) -> RoleActor:
        """One worker by its name, `rollout-0`; a sub-master is `rollout-master`."""
        rank = name.rpartition("-")[2]
        client = self._client(name, patience)
        return RoleActor(client, int(rank) if rank.isdecimal() else -1, timeout)

    def proxy(self, owner: str, namespace: str | None, cls: type[T]) -> T:
        """What stands here for an object that `owner` exported (`export_instance`)."""
        return proxy(self.worker(owner).call, namespace, cls)

    def channel(self, name: str) -> Any:
        """This worker's end of a channel of the job."""
        if self._open_channel is None:
            raise RuntimeError(f"{self.actor.name} runs without a job: it has no channel {name!r}")
        with self._lock:
            if name not in self._channels:
                self._channels[name] = self._open_channel(name)
            return self._channels[name]

    def progress(self, **numbers: Any) -> None:
        """Tell the job that this worker's code gets on: a step, a loss. Cheap; call it often."""
        if self._on_progress is not None:
            self._on_progress(numbers)

    def close(self) -> None:
        """End its connections to others."""
        with self._lock:
            clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            client.close()

    def _client(self, name: str, patience: float) -> RpcClient:
        with self._lock:
            client = self._clients.get((name, patience))
            if client is None:
                me = RpcPeer.me(self.actor.name, self.actor.incarnation)
                client = RpcClient(name, self.directory, me, self.secret, patience=patience)
                self._clients[name, patience] = client
            return client


_here: contextvars.ContextVar[CurrentWorker] = contextvars.ContextVar("current_worker")
_of_process: CurrentWorker | None = None


def current_worker() -> CurrentWorker:
    """The worker that this code runs in; RuntimeError outside of a job."""
    found = find_worker()
    if found is None:
        raise RuntimeError("this code does not run in a job: there is no current worker")
    return found


def find_worker() -> CurrentWorker | None:
    return _here.get(None) or _of_process


def be_worker(worker: CurrentWorker | None) -> None:
    """This process is one worker from now on."""
    global _of_process
    _of_process = worker


@contextlib.contextmanager
def as_worker(worker: CurrentWorker) -> Iterator[CurrentWorker]:
    """What runs inside is this worker: for several in one process."""
    token = _here.set(worker)
    try:
        yield worker
    finally:
        _here.reset(token)


def _no_workers(role: str, exists: bool, known: Iterable[str]) -> str:
    if exists or role in known:
        return f"the role {role!r} has no workers now"
    close = difflib.get_close_matches(role, known, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else f"; it has {', '.join(known) or 'none'}"
    return f"the job has no role {role!r}{hint}"
