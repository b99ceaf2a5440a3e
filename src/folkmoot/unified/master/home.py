"""A job's folder: what it is, its secret, its state, what happened, and what its actors printed.

    job.json        the spec
    secret          that the job's processes share
    state/          the journal
    events.jsonl    what happened
    logs/           what each actor printed
    run/            sockets and files of living processes; gone when the job is over
    outcome.json    how it ended

Only its owner may enter.
"""

import os
import secrets
import shutil
from pathlib import Path
from typing import TypeVar

import msgspec

from folkmoot.core.job import JobSpec
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.core.user_error import UserError
from folkmoot.host.files import StagedFile, write_atomically
from folkmoot.unified.job_addresses import boot_id

SECRET_BYTES = 32
#: What a master that cannot go on ends with: EX_CONFIG and EX_PROTOCOL of sysexits.h.
GIVE_UP, REPLACED = 78, 76
T = TypeVar("T", bound=msgspec.Struct)


class HomeError(UserError):
    """A job's folder cannot be used; the message says why and what to do."""


class JobSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a job is run, beside what it is."""

    substrate: str = "local"
    # Modules that the fork server imports beforehand.
    preload: tuple[str, ...] = ()
    # Seconds that actors go on without a master.
    alone: float = 600.0
    # The store that keeps the journal, by its url; "" keeps it in the job's folder.
    state: str = ""
    # Where Ray is, for its substrate, and where the master's own host is reached from there.
    ray_address: str = ""


class JobOutcome(msgspec.Struct, frozen=True):
    exit_code: int
    reason: str


class Home:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @property
    def journal(self) -> Path:
        return self.folder / "state" / "journal"

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def run(self) -> Path:
        return self.folder / "run"

    @property
    def control(self) -> str:
        """Where the master of this job is reached on this machine, whichever it is."""
        return f"unix:{self.run}/master.sock"

    def control_of(self, epoch: int) -> str:
        """Where one master listens: what it leaves or removes there is its own."""
        return f"unix:{self.run}/master.{epoch}.sock"

    def point_to(self, epoch: int) -> None:
        """Let `control` lead to this master."""
        link = self.run / f"master.{epoch}.link"
        link.unlink(missing_ok=True)
        link.symlink_to(f"master.{epoch}.sock")
        link.replace(self.run / "master.sock")
        (self.run / "master.machine").write_text(boot_id())

    @property
    def master_is_here(self) -> bool:
        """Whether its master runs, or ran, on this machine: a socket leads to no other."""
        try:
            return (self.run / "master.machine").read_text() == boot_id()
        except FileNotFoundError:
            return True

    def leads_elsewhere(self, epoch: int) -> bool:
        """Whether `control` leads to another master than this one by now."""
        try:
            return (self.run / "master.sock").readlink().name != f"master.{epoch}.sock"
        except FileNotFoundError:
            return False  # the job is over

    def log(self, actor: str) -> Path:
        return self.folder / "logs" / f"{actor}.log"

    def listen(self, actor: str, incarnation: int) -> str:
        return f"unix:{self.run}/{actor}.{incarnation}.sock"

    @property
    def exists(self) -> bool:
        return (self.folder / "job.json").exists()

    def create(self, spec: JobSpec, settings: JobSettings) -> None:
        """Make the folder; one that holds a job already is refused."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(self.folder / "settings.json", msgspec.json.encode(settings))
        secret = os.open(self.folder / "secret", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(secret, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
        try:
            # The last file: with it, the folder holds a job.
            with StagedFile(self.folder / "job.json") as staged:
                staged.write(msgspec.json.encode(spec))
                staged.commit(create=True)
        except FileExistsError:
            raise HomeError(
                f"{self.folder} holds a job already: see it with `folkmoot job status"
                f" {spec.name}`, or take another --folder"
            ) from None

    def spec(self) -> JobSpec:
        return self._read("job.json", JobSpec)

    def settings(self) -> JobSettings:
        return self._read("settings.json", JobSettings)

    def secret(self) -> bytes:
        try:
            return (self.folder / "secret").read_bytes()
        except OSError as error:
            raise HomeError(f"the job's secret cannot be read: {error}") from None

    def outcome(self) -> JobOutcome | None:
        """How the job ended, once it has."""
        if not (self.folder / "outcome.json").exists():
            return None
        return self._read("outcome.json", JobOutcome)

    def write_outcome(self, outcome: JobOutcome) -> None:
        write_atomically(self.folder / "outcome.json", msgspec.json.encode(outcome))

    def tidy(self) -> None:
        """Nothing of the job runs any more: no socket is left."""
        shutil.rmtree(self.run, ignore_errors=True)

    def _read(self, name: str, type_: type[T]) -> T:
        path = self.folder / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=type_)
        except FileNotFoundError:
            raise HomeError(f"there is no job in {self.folder}: {name} is missing") from None
        except UNREADABLE as error:
            raise HomeError(f"{path} cannot be read ({error}): restore it from a copy") from None
