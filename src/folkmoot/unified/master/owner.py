"""What the owner of a job may ask its master: how it is, to stop, to scale a role.

The owner's commands come over the same line as the actors, with the job's secret.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

import msgspec

from folkmoot.core.job import messages as m
from folkmoot.unified.control import MASTER
from folkmoot.unified.master.home import Home
from folkmoot.unified.rpc.connect import connect
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.substrate import Name

if TYPE_CHECKING:
    from folkmoot.unified.master.prime_master import PrimeMaster

# Seconds in which a master that does not hang has answered.
ANSWER = 30.0


class ActorStatus(msgspec.Struct, frozen=True, kw_only=True):
    actor: str
    stage: str
    incarnation: int
    node: str
    pid: int
    failures: int
    numbers: dict[str, Any] = {}


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    phase: str
    epoch: int
    failures: int
    reason: str
    actors: tuple[ActorStatus, ...]


class OwnerCalls:
    """The master's side."""

    def __init__(self, master: "PrimeMaster") -> None:
        self._master = master

    def export(self, methods: RemoteMethods) -> None:
        for method in (self.status, self.stop, self.scale):
            methods.export(method.__name__, method)

    def status(self) -> bytes:
        return msgspec.json.encode(self._in_loop(self._status()))

    def stop(self, reason: str, exit_code: int) -> str:
        return self._why(m.StopAsked(reason, exit_code))

    def scale(self, role: str, total: int) -> str:
        return self._why(m.ScaleAsked(role, total))

    def _why(self, event: m.AnyEvent) -> str:
        """Why it was refused, or nothing."""
        refused = self._in_loop(self._master.submit(event))
        return refused.reason if refused else ""

    def _in_loop(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._master.loop).result()

    async def _status(self) -> JobStatus:
        state, contacts = self._master.state, self._master.contacts
        actors = []
        for actor in state.actors.values():
            contact = contacts.find(Name(actor.id, actor.incarnation))
            status = contact.status if contact else None
            told = ActorStatus(
                actor=actor.id,
                stage=actor.stage,
                incarnation=actor.incarnation,
                node=actor.node,
                pid=status.pid if status else 0,
                failures=actor.failures,
                numbers=contact.numbers if contact else {},
            )
            actors.append(told)
        return JobStatus(
            name=state.spec.name,
            phase=state.phase,
            epoch=self._master.epoch,
            failures=state.failures,
            reason=state.reason,
            actors=tuple(actors),
        )


class OwnersLine:
    """The owner's side. `RpcError` when no master answers."""

    def __init__(self, home: Home) -> None:
        self._gone = threading.Event()
        self._connection = connect(
            home.control,
            RpcPeer.me("owner"),
            home.secret(),
            expect=MASTER,
            on_closed=lambda _: self._gone.set(),
        )

    def status(self) -> JobStatus:
        said = self._connection.call("status").result(ANSWER)
        return msgspec.json.decode(said, type=JobStatus)

    def stop(self, reason: str = "stop was asked for", exit_code: int = 143) -> str:
        return str(self._connection.call("stop", reason, exit_code).result(ANSWER))

    def scale(self, role: str, total: int) -> str:
        return str(self._connection.call("scale", role, total).result(ANSWER))

    def until_gone(self) -> None:
        """Until the master ends, which it does when nothing of its job is left."""
        self._gone.wait()

    def close(self) -> None:
        self._connection.close()
