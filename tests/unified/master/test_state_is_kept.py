"""What a master must not do with a state that it cannot read, or cannot write."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from folkmoot.core.job import JobSpec
from folkmoot.core.job.messages import Place
from folkmoot.host.journal import Journal
from folkmoot.unified.master import events
from folkmoot.unified.master.home import GIVE_UP, Home, JobSettings
from folkmoot.unified.master.prime_master import PrimeMaster
from folkmoot.unified.substrate import Found, Launch, Name, Tell
from unified.master.job_run import JobRun, job_run, role


def damage(run: JobRun) -> None:
    """Turn a byte in the middle of the newest journal."""
    newest = max(run.home.journal.parent.glob("journal.0*"))
    data = bytearray(newest.read_bytes())
    data[200] ^= 0xFF
    newest.write_bytes(data)


def test_unreadable_state_stops_the_master_and_nobody_else(folder: Path) -> None:
    """P8: state that cannot be read must not be taken for no state."""
    with job_run(folder, {"a": role(total=2)}) as run:
        run.start()
        run.running()
        run.kill_master()
        damage(run)
        files = sorted(run.home.journal.parent.glob("journal.0*"))
        assert run.start().wait(60) == GIVE_UP
        assert "cannot be used" in (folder / "master.log").read_text()
        assert files[-1] in run.home.journal.parent.iterdir()
        run.takes_steps("a-0")
        run.unbroken("a-0")
        assert len(run.all_of(events.ActorCreated)) == 2


class Orders:
    """A substrate that does nothing and remembers what it was told to do."""

    host = ""

    def __init__(self) -> None:
        self.given: list[object] = []

    def open(self, epoch: int, tell: Tell) -> Found:
        return Found((), ())

    def announce(self, address: str) -> None: ...

    def place(self, order: Place) -> None:
        self.given.append(order)

    def release(self, gang: str) -> None: ...

    def create(self, launches: Sequence[Launch]) -> None:
        self.given += launches

    def kill(self, name: Name) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


def test_a_decision_that_cannot_be_saved_is_not_carried_out(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P7: a failed save that is only logged lets the stage advance on nothing."""
    home, orders = Home(folder / "job"), Orders()
    home.create(JobSpec(name="test", roles={"a": role()}), JobSettings())

    def fail(journal: Journal, record: bytes) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    master = PrimeMaster(home, orders)
    monkeypatch.setattr(Journal, "append", fail)
    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(master.run())
    assert not orders.given
    assert not master.state.begun
