"""A job on real processes, of this machine or of a Ray cluster, watched through its event log."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from folkmoot.core.job import JobSpec, Resource, RoleSpec
from folkmoot.core.job import messages as m
from folkmoot.host.event_log import LogReader, records_in
from folkmoot.host.processes import start_apart
from folkmoot.unified.master import events
from folkmoot.unified.master.__main__ import substrate_of
from folkmoot.unified.master.home import Home, JobOutcome, JobSettings
from unified.substrate.processes import PATIENCE, wait_gone
from unified.substrate.stand import end_all

E = TypeVar("E", bound=msgspec.Struct)
ROLES = "unified.master.roles"
# What a worker of these tests takes of a small cluster.
SMALL = Resource(cpu=0.1)


class JobWatch:
    """What happened in a job, from its event log."""

    def __init__(self, home: Home, log: Path) -> None:
        self.home, self._log = home, log
        self._reader = LogReader(home.events, records_in(m, events))
        self.happened: list[msgspec.Struct] = []

    def seen(self) -> list[msgspec.Struct]:
        self.happened += [entry.record for entry in self._reader.new()]
        return self.happened

    def all_of(self, kind: type[E], which: Callable[[E], bool] = lambda _: True) -> list[E]:
        return [e for e in self.seen() if isinstance(e, kind) and which(e)]

    def wait(self, kind: type[E], which: Callable[[E], bool] = lambda _: True, nth: int = 1) -> E:
        found = self.until(lambda: self.all_of(kind, which)[nth - 1 :])
        return found[0]

    def until(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            if time.monotonic() > deadline:
                log = self._log.read_text()
                raise AssertionError(f"it never came; the master said:\n{log}\n{self.happened}")
            time.sleep(0.005)
        return found

    def running(self, nth: int = 1) -> None:
        self.wait(m.StateChanged, lambda e: e.after == "RUNNING", nth)

    def runs(self, actor: str, nth: int = 1) -> None:
        self.wait(m.ActorChanged, lambda e: e.actor == actor and e.after == "RUNNING", nth)


class JobRun(JobWatch):
    """`ray` is the address of a cluster; without one, actors are processes of this machine."""

    def __init__(self, folder: Path, spec: JobSpec, ray: str = "", **settings: Any) -> None:
        super().__init__(Home(folder / "job"), folder / "master.log")
        self.folder, self.ray = folder, ray
        where = {"substrate": "ray", "ray_address": ray} if ray else {}
        self.home.create(spec, JobSettings(**{"alone": 60.0, **where, **settings}))
        self.masters: list[subprocess.Popen[bytes]] = []

    # Masters.

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "folkmoot.unified.master", *options]
        master = start_apart([*command, str(self.home.folder)], self._log)
        self.masters.append(master)
        return master

    def kill_master(self) -> None:
        self.masters[-1].kill()
        self.masters[-1].wait()

    def lose_folder(self) -> None:
        """With the machine of the master; elsewhere is a copy of what never changes."""
        lost, self.home = self.home, Home(self.folder / "elsewhere")
        self.home.folder.mkdir()
        for name in ("settings.json", "secret", "job.json"):
            shutil.copy(lost.folder / name, self.home.folder)
        shutil.rmtree(lost.folder)
        self._reader = LogReader(self.home.events, records_in(m, events))

    def outcome(self) -> JobOutcome:
        """Let the job end."""
        (self.folder / "finish").touch()
        return self.stopped()

    def stopped(self) -> JobOutcome:
        """How a job ended that was told to: workers that finish by themselves might be first."""
        self.masters[-1].wait(PATIENCE)
        outcome = self.home.outcome()
        assert outcome, self._log.read_text()
        return outcome

    # Its actors.

    def pid(self, actor: str, incarnation: int = 1) -> int:
        def this(e: events.ActorCreated) -> bool:
            return (e.actor, e.incarnation) == (actor, incarnation)

        return self.wait(events.ActorCreated, this).pid

    def life_of(self, actor: str) -> int:
        """The incarnation it is in now."""
        return max(e.incarnation for e in self.all_of(m.Create, lambda e: e.actor == actor))

    def kill(self, actor: str, incarnation: int = 1) -> None:
        os.kill(self.pid(actor, incarnation), signal.SIGKILL)

    def fork_server(self) -> int:
        stat = Path(f"/proc/{self.pid('a-0')}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1])

    def steps(self, actor: str) -> list[tuple[int, int, int]]:
        """(step, process, incarnation) of each step it took."""
        path = self.folder / f"{actor}.steps"
        whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return [tuple(map(int, line.split())) for line in whole.splitlines()]  # type: ignore[misc]

    def takes_steps(self, actor: str, incarnation: int = 1, more: int = 3) -> None:
        """Wait until it has gone on from here."""
        here = len(self.steps(actor))

        def gone_on() -> bool:
            new = [step for step in self.steps(actor)[here:] if step[2] == incarnation]
            return len(new) >= more

        self.until(gone_on)

    def unbroken(self, actor: str) -> None:
        """All its steps are of one process, none is missing and none was taken twice."""
        steps = self.steps(actor)
        assert [step for step, *_ in steps] == list(range(len(steps)))
        assert len({pid for _, pid, _ in steps}) == 1

    def nothing_left(self) -> None:
        for created in self.all_of(events.ActorCreated):
            wait_gone(created.pid)
        assert not self.home.run.exists()
        if self.ray:
            assert not left_on_ray(self.ray, self.home.spec().name)

    def clean_up(self) -> None:
        for master in self.masters:
            if master.poll() is None:
                master.kill()
                master.wait()
        if self.home.outcome() is None:
            end_all(substrate_of(self.home))


def left_on_ray(address: str, job: str) -> list[str]:
    """Actors and placement groups of a job; asked by a process of its own, as any other driver."""
    asked = subprocess.run(
        [sys.executable, "-m", "support.ray_left", address, job], capture_output=True, check=True
    )
    return asked.stdout.decode().split()


def role(worker: str = "Stepper", **more: Any) -> RoleSpec:
    return RoleSpec(entry=f"{ROLES}:{worker}", **{"resource": SMALL, **more})


# A job without steppers, which ends by itself.
ASKING = {"adder": role("Adder", total=2, driver=False), "asker": role("Asker")}


def on_folder(roles: dict[str, RoleSpec], folder: Path) -> dict[str, RoleSpec]:
    """The same roles, whose steppers write into `folder`."""
    return {
        name: msgspec.structs.replace(role, config={"folder": str(folder), **role.config})
        if role.entry.split(":")[1] not in ("Adder", "Asker", "breaks_at_birth")
        else role
        for name, role in roles.items()
    }


@contextmanager
def job_run(
    folder: Path, roles: dict[str, RoleSpec], ray: str = "", *, state: str = "", **more: Any
) -> Iterator[JobRun]:
    """A job whose steppers write into `folder`; nothing of it outlives the block."""
    name = f"job{secrets.token_hex(4)}"
    spec = JobSpec(name=name, roles=on_folder(roles, folder), **more)
    run = JobRun(folder, spec, ray, state=state)
    try:
        yield run
    finally:
        run.clean_up()
