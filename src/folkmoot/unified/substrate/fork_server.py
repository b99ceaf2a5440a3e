"""The fork server: a process that has imported what actors need, and forks them.

An actor begins in milliseconds, and the imports' memory is shared. The fork server is in a session
of its own and outlives the master:

- It tells the master of every end as it reaps it. Ends that nobody heard are kept for the next.
- When an actor ends, whatever it started ends too; even what took a session of its own, since
  the fork server inherits it.
- A fork server that is killed leaves its actors alive. The next one finds them by their files
  (`pid_files`) and watches them as its own. An actor does nothing before its file is written.
- It ends with the job (`EndAll`), or when no master has come for `alone` seconds: then, too, it
  leaves nothing behind.

One thread, one loop, no locks: nothing here may be forked half-way.
"""

import argparse
import contextlib
import ctypes
import functools
import importlib
import logging
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from folkmoot.host.files import lock_file
from folkmoot.host.processes import how_it_ended
from folkmoot.unified.rpc.address import forget, listen
from folkmoot.unified.substrate import Created, Ended, Launch, Name
from folkmoot.unified.substrate.fork_server_wire import (
    AllEnded,
    Answer,
    Attach,
    EndAll,
    Fork,
    Here,
    Kill,
    Messages,
    Order,
    TurnedAway,
    decode_order,
    packed,
)
from folkmoot.unified.substrate.import_ahead import import_ahead
from folkmoot.unified.substrate.pid_files import (
    ACTOR,
    children,
    orphans,
    read_pid_files,
    remove_pid_file,
    runs,
    write_pid_file,
)

logger = logging.getLogger("folkmoot.fork_server")
NODE = "local"
# Ends that are kept for a master to come.
KEPT = 10_000
PR_SET_CHILD_SUBREAPER = 36


class ForkServer:
    def __init__(self, folder: Path, alone: float, lock: int) -> None:
        self._folder, self._alone, self._lock = folder, alone, lock
        self._selector = selectors.DefaultSelector()
        self._listening, self.address = listen(f"unix:{folder}/fork_server.sock")
        self._master: socket.socket | None = None
        self._epoch = 0
        self._living: dict[Name, int] = {}
        self._adopted: dict[Name, int] = {}  # pidfds: we are not their parent
        self._ended: dict[Name, Ended] = {}
        self._deadline = 0.0
        self._over = False
        self._hear, wake = socket.socketpair()
        self._hear.setblocking(False)
        wake.setblocking(False)
        self._wake = wake
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        self._watch(self._hear, self._reap)
        self._watch(self._listening, self._accept)
        self._adopt()

    def run(self) -> None:
        self._deadline = time.monotonic() + self._alone  # nobody was heard while it imported
        while not self._over:
            ready = self._selector.select(self._patience())
            for key, _ in ready:
                key.data()
            if not ready and self._patience() == 0.0:
                logger.warning("no master has come for %g s: all actors end", self._alone)
                self._end_all()

    # Masters.

    def _patience(self) -> float | None:
        return None if self._master else max(0.0, self._deadline - time.monotonic())

    def _accept(self) -> None:
        stream, _ = self._listening.accept()
        messages = Messages()
        stream.setblocking(True)
        self._watch(stream, lambda: self._read(stream, messages))

    def _read(self, stream: socket.socket, messages: Messages) -> None:
        try:
            data = stream.recv(65536)
            for message in messages.received(data):
                self._take(stream, decode_order(message))
        except (OSError, ValueError) as error:
            logger.warning("a master's connection broke: %s", error)
            data = b""
        if not data:
            self._leave(stream)

    def _take(self, stream: socket.socket, order: Order) -> None:
        match order:
            case Attach(epoch):
                self._attach(stream, epoch)
            case _ if stream is not self._master:
                self._send(stream, TurnedAway(self._epoch))
            case Fork(launch):
                self._fork(launch)
            case Kill():
                self._kill(order.name)
            case EndAll():
                self._end_all()

    def _attach(self, stream: socket.socket, epoch: int) -> None:
        if epoch < self._epoch:
            self._send(stream, TurnedAway(self._epoch))
            return
        if self._master not in (None, stream):
            self._send(self._master, TurnedAway(epoch))
            self._leave(self._master)
        self._master, self._epoch = stream, epoch
        living = tuple(Created(*name, NODE, pid) for name, pid in self._living.items())
        self._tell(Here(living, tuple(self._ended.values())))

    def _leave(self, stream: socket.socket) -> None:
        if stream.fileno() < 0:
            return
        self._selector.unregister(stream)
        stream.close()
        if stream is self._master:
            self._master = None
            self._deadline = time.monotonic() + self._alone

    def _tell(self, answer: Answer) -> None:
        if self._master:
            self._send(self._master, answer)

    def _send(self, stream: socket.socket, answer: Answer) -> None:
        try:
            stream.sendall(packed(answer))
        except OSError as error:
            logger.warning("a master is gone: %s", error)
            self._leave(stream)

    # Actors.

    def _fork(self, launch: Launch) -> None:
        if launch.name in self._living or launch.name in self._ended:
            return  # an order given twice
        go, told = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            self._become(launch, go)
        os.close(go)
        write_pid_file(self._folder, launch.name, pid)
        os.write(told, b"!")
        os.close(told)
        self._living[launch.name] = pid
        self._tell(Created(*launch.name, NODE, pid))

    def _become(self, launch: Launch, go: int) -> None:
        """In the child: run the actor, and never return."""
        code = 1
        try:
            self._forget_fork_server()
            if os.read(go, 1) == b"!":  # else nobody knows of us: the fork server died
                os.close(go)
                os.environ.update(launch.env)
                os.environ[ACTOR] = f"{self._folder}/{launch.name}"
                _print_into(launch.log)
                code = run_main(launch)
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _forget_fork_server(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for key in [*self._selector.get_map().values()]:
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
            else:
                os.close(key.fd)
        self._selector.close()
        self._wake.close()
        os.close(self._lock)
        os.setsid()

    def _kill(self, name: Name) -> None:
        if pid := self._living.get(name):
            _end_group(pid)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._hear.recv(4096)
        with contextlib.suppress(ChildProcessError):
            # The group is ended before the id of its leader may be given to another.
            while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                _end_group(found.si_pid)
                _, status = os.waitpid(found.si_pid, 0)
                self._died(found.si_pid, os.waitstatus_to_exitcode(status))

    def _died(self, pid: int, code: int) -> None:
        name = next((name for name, its in self._living.items() if its == pid), None)
        if name:
            self._end(name, how_it_ended(code), clean=code == 0)

    def _end(self, name: Name, how: str, clean: bool = False) -> None:
        del self._living[name]
        for pid in orphans(self._folder, name):
            _end_group(pid)
        ended = Ended(*name, how, clean)
        self._ended[name] = ended
        while len(self._ended) > KEPT:
            del self._ended[next(iter(self._ended))]
        remove_pid_file(self._folder, name)
        self._tell(ended)

    def _adopt(self) -> None:
        """Take over what a fork server before us left."""
        for found in read_pid_files(self._folder):
            try:
                pidfd = os.pidfd_open(found.pid) if runs(found) else -1
            except ProcessLookupError:
                pidfd = -1
            self._living[found.name] = found.pid
            if pidfd < 0 or not runs(found):
                self._end(found.name, "ended unseen, while its fork server was gone")
                continue
            self._adopted[found.name] = pidfd
            self._watch(pidfd, functools.partial(self._adopted_ended, found.name))

    def _adopted_ended(self, name: Name) -> None:
        pidfd = self._adopted.pop(name)
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _end_group(self._living[name])
        self._end(name, "ended; nobody knows how, since its fork server was gone")

    # The end.

    def _end_all(self) -> None:
        """Leave nothing: actors, what they started, and what that started."""
        for name in [*self._living]:
            self._kill(name)
        for pidfd in self._adopted.values():
            selectors_wait(pidfd)
        while pids := children():
            for pid in pids:
                _end_group(pid)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        for name in [*self._living]:
            remove_pid_file(self._folder, name)
        forget(self.address)
        self._tell(AllEnded())
        self._over = True

    def _watch(self, what: socket.socket | int, act: Callable[[], None]) -> None:
        self._selector.register(what, selectors.EVENT_READ, act)


def run_main(launch: Launch) -> int:
    """Call what the launch names; the exit code that its process has to end with."""
    module, _, function = launch.main.partition(":")
    try:
        code = getattr(importlib.import_module(module), function)(launch.argument)
    except SystemExit as left:
        code = left.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:
        traceback.print_exc()
        code = 1
    return int(code or 0)


def selectors_wait(pidfd: int) -> None:
    with selectors.DefaultSelector() as selector:
        selector.register(pidfd, selectors.EVENT_READ)
        selector.select()


def _end_group(pid: int) -> None:
    """An actor leads its session; a child that has not come so far is ended alone."""
    for end in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _print_into(log: str) -> None:
    if not log:
        return
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for stream in (1, 2):
        os.dup2(fd, stream)
    os.close(fd)
    for printed in (sys.stdout, sys.stderr):
        printed.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _inherit_orphans() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Forks the actors of one job.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--alone", type=float, default=600.0)
    parser.add_argument("--preload", action="append", default=[])
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s")
    lock = lock_file(given.folder / "fork_server.lock")
    if lock is None:
        return  # there is one; it may be just starting, or just ending
    _inherit_orphans()
    # Whoever connects meanwhile is answered when all is imported.
    fork_server = ForkServer(given.folder, given.alone, lock)
    import_ahead(given.preload)
    fork_server.run()


if __name__ == "__main__":
    main()
