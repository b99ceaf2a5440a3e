"""Which processes belong to a job: files that outlive those who wrote them.

Each actor has a file with its process id and the time at which that process began (an id alone is
given to others later), of this boot of the machine. Its programs inherit `ACTOR` in their
environment, so that what an actor leaves running is known for its own when it is dead.
"""

import os
from pathlib import Path

import msgspec

from folkmoot.unified.job_addresses import boot_id
from folkmoot.unified.substrate import Name, OfActor

#: `<folder of the fork server>/<actor>.<incarnation>`, in the environment of every actor.
ACTOR = "FOLKMOOT_ACTOR"


class PidFile(OfActor, frozen=True):
    pid: int
    begun: str


def _path(folder: Path, name: Name) -> Path:
    return folder / f"{name}.pid"


def write_pid_file(folder: Path, name: Name, pid: int) -> None:
    made = PidFile(name.actor, name.incarnation, pid, _begun(pid) or "")
    staged = _path(folder, name).with_suffix(".new")
    staged.write_bytes(msgspec.json.encode(made))
    staged.replace(_path(folder, name))


def remove_pid_file(folder: Path, name: Name) -> None:
    _path(folder, name).unlink(missing_ok=True)


def read_pid_files(folder: Path) -> list[PidFile]:
    return [msgspec.json.decode(p.read_bytes(), type=PidFile) for p in sorted(folder.glob("*.pid"))]


def runs(of: PidFile) -> bool:
    """Whether the very process still runs."""
    return of.begun != "" and _begun(of.pid) == of.begun


def orphans(folder: Path, name: Name) -> list[int]:
    """Processes that a dead actor has started and that we inherited."""
    wanted = f"{ACTOR}={folder}/{name}".encode()
    return [pid for pid in children() if wanted in _environment(pid)]


def children() -> list[int]:
    """Of this process, which has one thread."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in listed.split()]


def _begun(pid: int) -> str | None:
    """The boot, and when the process began in it; None once it has ended, reaped or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot_id()} {fields[19]}"


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
