"""Actors as processes of this machine, forked by a fork server that outlives the master.

Every order goes to the fork server over one connection; a thread hears what it tells. When that
connection breaks, the fork server has died: another is started, which finds the actors that live.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from folkmoot.core.job.messages import Place, Placed, Unplaceable
from folkmoot.host.clock import backoff
from folkmoot.host.processes import start_apart
from folkmoot.unified.rpc.address import connect
from folkmoot.unified.substrate import (
    Created,
    Ended,
    Found,
    Launch,
    Name,
    SubstrateError,
    SubstrateLost,
    Superseded,
    Tell,
)
from folkmoot.unified.substrate.fork_server import NODE
from folkmoot.unified.substrate.fork_server_wire import (
    AllEnded,
    Attach,
    EndAll,
    Fork,
    Here,
    Kill,
    Messages,
    Order,
    TurnedAway,
    decode_answer,
    packed,
    receive,
)

# Seconds that a fork server may take to import what it is told to.
START = 120.0
# Fork servers tried before it is said that none can be had.
TRIES = 5
# Seconds that orphaned actors may go on with no master.
ALONE = 600.0


class LocalSubstrate:
    """`preload` names modules that the fork server imports beforehand."""

    host = ""

    def __init__(self, folder: Path, preload: Sequence[str] = (), alone: float = ALONE) -> None:
        self._folder, self._preload, self._alone = folder, preload, alone
        self._lock = threading.RLock()
        self._stream: socket.socket | None = None
        self._wanted: dict[Name, Launch] = {}  # ordered, and not known to exist or to have ended
        self._living: set[Name] = set()
        self._gpus: dict[str, float] = {}  # that gangs have
        self._fork_server: subprocess.Popen[bytes] | None = None  # that we started
        self._closed = False
        self._all_ended = threading.Event()
        self._superseded: int | None = None

    def open(self, epoch: int, tell: Tell) -> Found:
        self._epoch, self._tell = epoch, tell
        stream, messages, here = self._attach()
        self._stream = stream
        self._living = {created.name for created in here.living}
        self._listener = threading.Thread(
            target=self._listen, args=(stream, messages), name="fork_server", daemon=True
        )
        self._listener.start()
        return Found(here.living, here.ended)

    def announce(self, address: str) -> None:
        """Actors know the path of the master's socket; it is the same for every master."""

    def place(self, order: Place) -> None:
        if why := self._no_room(order):
            self._tell(Unplaceable(order.gang, why))
            return
        self._gpus[order.gang] = sum(bundle.needs.get("gpu", 0.0) for bundle in order.bundles)
        actors = [actor for bundle in order.bundles for actor in bundle.actors]
        self._tell(Placed(order.gang, dict.fromkeys(actors, NODE)))

    def _no_room(self, order: Place) -> str:
        """The system shares out its cores; that there are so many nodes and GPUs is for us."""
        if order.strategy == "STRICT_SPREAD" and len(order.bundles) > 1:
            return "STRICT_SPREAD needs several nodes, and this is one: use SPREAD, or Ray"
        needed = sum(bundle.needs.get("gpu", 0.0) for bundle in order.bundles)
        free = len(gpus()) - sum(self._gpus.values())
        return f"it needs {needed:g} GPUs, and {free:g} are free here" if needed > free else ""

    def release(self, gang: str) -> None:
        self._gpus.pop(gang, None)

    def create(self, launches: Sequence[Launch]) -> None:
        with self._lock:
            self._wanted.update((launch.name, launch) for launch in launches)
            self._order(*map(Fork, launches))

    def kill(self, name: Name) -> None:
        self._order(Kill(*name))

    def end(self) -> None:
        with self._lock:
            self._wanted.clear()
            self._order(EndAll())
        self._all_ended.wait()
        self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            stream, self._stream = self._stream, None
        if stream:
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)
            stream.close()

    # The connection.

    def _order(self, *orders: Order) -> None:
        if self._superseded is not None:
            raise Superseded(f"the master of epoch {self._superseded} gives the orders now")
        with self._lock:
            if self._stream:
                # A fork server that is gone is replaced by `_listen`, which repeats what it must.
                with contextlib.suppress(OSError):
                    self._stream.sendall(b"".join(map(packed, orders)))

    def _attach(self) -> tuple[socket.socket, Messages, Here]:
        for _ in range(TRIES):
            stream, messages = self._connect(), Messages()
            if here := self._introduce(stream, messages):
                return stream, messages, here
            stream.close()  # that fork server was just dying
        raise SubstrateError(f"the fork server of {self._folder} ends whenever it is spoken to")

    def _introduce(self, stream: socket.socket, messages: Messages) -> Here | None:
        stream.settimeout(None)
        with contextlib.suppress(ConnectionError):
            stream.sendall(packed(Attach(self._epoch)))
            for message in receive(stream, messages):
                answer = decode_answer(message)
                if isinstance(answer, Here):
                    return answer
                if isinstance(answer, TurnedAway):
                    raise Superseded(f"the master of epoch {answer.epoch} gives the orders now")
        return None

    def _connect(self) -> socket.socket:
        """To the fork server that is there, or to a new one."""
        address, until = f"unix:{self._folder}/fork_server.sock", time.monotonic() + START
        failed = 0
        for delay in backoff(0.01, 0.1):
            with contextlib.suppress(OSError):
                return connect(address, START)
            if self._fork_server is None or self._fork_server.poll() is not None:
                failed += bool(self._fork_server and self._fork_server.returncode)
                self._fork_server = start_fork_server(self._folder, self._preload, self._alone)
            if failed >= TRIES or time.monotonic() > until:
                break
            time.sleep(delay)
        last = (self._folder / "fork_server.log").read_text(errors="replace").splitlines()[-15:]
        raise SubstrateError("the fork server did not start:\n" + "\n".join(last))

    def _listen(self, stream: socket.socket, messages: Messages) -> None:
        while True:
            with contextlib.suppress(OSError):
                for message in receive(stream, messages):
                    self._hear(decode_answer(message))
            if self._closed or self._superseded is not None or self._all_ended.is_set():
                return
            try:
                stream, messages = self._come_back()
            except (OSError, SubstrateError) as error:
                self._tell(SubstrateLost(str(error)))
                return

    def _hear(self, answer: object) -> None:
        match answer:
            case Created():
                self._born(answer)
            case Ended():
                self._gone(answer)
            case TurnedAway(epoch):
                self._superseded = epoch
                why = f"the master of epoch {epoch} gives the orders now"
                self._tell(SubstrateLost(why, replaced=True))
            case AllEnded():
                self._all_ended.set()

    def _born(self, created: Created) -> None:
        with self._lock:
            self._wanted.pop(created.name, None)
            self._living.add(created.name)
        self._tell(created)

    def _gone(self, ended: Ended) -> None:
        with self._lock:
            known = ended.name in self._living or self._wanted.pop(ended.name, None) is not None
            self._living.discard(ended.name)
        if known:
            self._tell(ended)

    def _come_back(self) -> tuple[socket.socket, Messages]:
        """The fork server died: start another, learn what became of actors, repeat the orders."""
        stream, messages, here = self._attach()
        with self._lock:
            self._stream = stream
        living = {c.name: c for c in here.living}
        ended = {e.name: e for e in here.ended}
        for name in [*self._living - living.keys()]:
            self._gone(
                ended.get(name) or Ended(*name, "ended unseen, while its fork server was gone")
            )
        for name in [*self._wanted]:
            if name in living:
                self._born(living[name])
            elif name in ended:
                self._gone(ended[name])
        self._order(*map(Fork, self._wanted.values()))
        return stream, messages


def start_fork_server(
    folder: Path, preload: Sequence[str], alone: float
) -> "subprocess.Popen[bytes]":
    """Start one, and do not wait for it. It ends at once where there is one already."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    command = [sys.executable, "-m", "folkmoot.unified.substrate.fork_server", str(folder)]
    command += [f"--alone={alone}", *(f"--preload={module}" for module in preload)]
    return start_apart(command, folder / "fork_server.log")


def gpus() -> list[str]:
    """Those that this process may use."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [device for device in visible.split(",") if device.strip()]
    return [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
