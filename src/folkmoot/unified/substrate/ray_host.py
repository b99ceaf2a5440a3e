"""What a Ray actor of ours is: a process that runs one actor's main in a thread.

It is detached, has a name that says whose it is, and is never restarted by Ray: another
incarnation is another actor. Any master can `watch` it: that call ends when the actor does, so
deaths are told, not asked for.
"""

import asyncio
import contextlib
import os
import select
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple

from folkmoot.unified import job_addresses
from folkmoot.unified.substrate import Launch, Name
from folkmoot.unified.substrate.fork_server import _print_into, run_main
from folkmoot.unified.substrate.pid_files import ACTOR

#: All our actors are in this namespace; `<job>/<actor>/<incarnation>` is a name.
NAMESPACE = "folkmoot"
# Seconds for those who watch to hear how it ended, before the process is gone.
LAST_WORDS = 0.2
# Seconds for a process that Ray was told to end.
GRACE = 1.0


class NodePid(NamedTuple):
    """Where an actor is."""

    node: str
    pid: int


def name_of(job: str, name: Name) -> str:
    return f"{job}/{name.actor}/{name.incarnation}"


def name_in(job: str, name: str) -> Name | None:
    """Whose name it is, if it is of this job."""
    of, _, rest = name.partition("/")
    actor, _, incarnation = rest.rpartition("/")
    return Name(actor, int(incarnation)) if of == job and incarnation.isdecimal() else None


class RayHost:
    """Made into a Ray actor by `substrate.ray`. Methods are short, or wait without a thread."""

    def __init__(self) -> None:
        self._began = False
        self._ended = asyncio.Event()
        self._code = 0

    async def begin(self, job: str, launch: Launch, path: list[str], master: str) -> NodePid:
        """Run the launch's main; once."""
        import ray

        context = ray.get_runtime_context()
        if not self._began:
            self._began = True
            sys.path += [entry for entry in path if entry not in sys.path]
            os.environ.update(launch.env)
            os.environ[ACTOR] = name_of(job, launch.name)
            job_addresses.own_host = ray.util.get_node_ip_address()
            job_addresses.announce(master)
            if launch.log and Path(launch.log).parent.parent.is_dir():
                _print_into(launch.log)
            loop = asyncio.get_running_loop()
            threading.Thread(target=self._run, args=(launch, loop), name="main").start()
        return NodePid(context.get_node_id(), os.getpid())

    async def seat(self) -> NodePid:
        import ray

        return NodePid(ray.get_runtime_context().get_node_id(), os.getpid())

    async def announce(self, master: str) -> None:
        job_addresses.announce(master)

    async def watch(self) -> int:
        """Until its main has returned; the call fails when the process ends before."""
        await self._ended.wait()
        return self._code

    def _run(self, launch: Launch, loop: asyncio.AbstractEventLoop) -> None:
        self._code = run_main(launch)
        loop.call_soon_threadsafe(self._ended.set)
        time.sleep(LAST_WORDS)
        os._exit(self._code)


def end_process(pid: int, mark: str, folder: str = "") -> None:
    """On the actor's node: see to it that its process is gone, what it started, and a folder."""
    if pid:
        _end(pid, mark, GRACE)
    for other in Path("/proc").iterdir():
        if other.name.isdecimal() and int(other.name) != os.getpid():
            _end(int(other.name), mark, 0.0)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


def _end(pid: int, mark: str, grace: float) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError, FileNotFoundError):
        pidfd = os.pidfd_open(pid)
        try:
            if grace and select.select([pidfd], [], [], grace)[0]:
                return
            # The environment of a worker of Ray is not changed by what we set in it: a process
            # that was told to go is known by its id, what it started by the mark it inherited.
            if grace or _marked(pid, mark):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                select.select([pidfd], [], [], 10.0)
        finally:
            os.close(pidfd)


def _marked(pid: int, mark: str) -> bool:
    """Whether the process was started by the actor, or by one of the job, of this mark."""
    wanted = f"{ACTOR}={mark}".encode()
    return any(
        entry.startswith(wanted) for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    )
