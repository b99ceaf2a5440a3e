"""One machine on one journal: what was answered is on the disk, whenever its holder dies."""

import asyncio
import errno
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from folkmoot.core import coordinator, federation
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.federation import Rules
from folkmoot.core.federation import messages as f
from folkmoot.host import durable
from folkmoot.host.durable import Durable, Step
from folkmoot.host.journal import Fenced, Journal, JournalError
from folkmoot.host.tasks import end_tasks

RUN = Run(
    run_id="moot",
    config=CoordinatorConfig(total_steps=4, min_clients=2, delay=0, warmup_time=0.05),
    model=Model(checkpoint="store/"),
)
A, B = b"a" * 32, b"b" * 32
EVENTS = [m.Join(A, "moot"), m.Join(B, "moot"), m.HealthCheck(A), m.HealthCheck(B, (), 5)]


class Held(Durable[Coordinator]):
    """A run's machine, and every step it was asked to carry out."""

    def __init__(self, path: Path, owner: str = "moot", take_over: bool = False, **more: int):
        self.steps: list[Step] = []
        self.news = asyncio.Event()
        journal = Journal(path, take_over=take_over)
        create = lambda: coordinator.create(RUN, 0)  # noqa: E731 - a value among values
        super().__init__(coordinator, journal, owner, create, self._note, **more)
        self.journal = journal

    def _note(self, step: Step) -> None:
        self.steps.append(step)
        self.news.set()

    async def reached(self, phase: Phase) -> None:
        while self.state.phase is not phase:
            self.news.clear()
            await self.news.wait()


@asynccontextmanager
async def served(held: Held) -> AsyncIterator[Held]:
    serving = asyncio.create_task(held.serve())
    try:
        yield held
    finally:
        await end_tasks([serving])
        held.close()


def state_of(path: Path) -> bytes:
    held = Held(path)
    held.close()
    return coordinator.encode(held.state)


def copied(held: Held, folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(held.journal.file, folder)
    return folder / held.journal.path.name


async def test_every_prefix_of_the_journal_is_a_state_that_was(tmp_path: Path) -> None:
    """Copy the journal after any record: what comes back is exactly the state of that moment."""
    held = Held(tmp_path / "j")
    states, copies = [coordinator.encode(held.state)], [copied(held, tmp_path / "0")]
    async with served(held), asyncio.timeout(120):
        for number, event in enumerate(EVENTS, 1):
            assert await held.submit(event) is None
            states.append(coordinator.encode(held.state))
            copies.append(copied(held, tmp_path / str(number)))
        await held.reached(Phase.RoundTrain)
        states.append(coordinator.encode(held.state))
        copies.append(copied(held, tmp_path / "last"))
    assert [state_of(copy) for copy in copies] == states


def test_a_record_that_was_cut_off_is_as_if_it_was_never_sent(tmp_path: Path) -> None:
    held = Held(tmp_path / "j")
    held.take(EVENTS[0])
    size, before = held.journal.size, coordinator.encode(held.state)
    held.take(EVENTS[1])
    end = held.journal.size
    held.close()
    whole = held.journal.file.read_bytes()
    for cut in range(size, end, 7):
        folder = tmp_path / str(cut)
        folder.mkdir()
        (folder / held.journal.file.name).write_bytes(whole[:cut] + bytes(len(whole) - cut))
        assert state_of(folder / "j") == before


@pytest.mark.parametrize("together", [False, True])
async def test_a_long_journal_becomes_one_snapshot(tmp_path: Path, together: bool) -> None:
    held = Held(tmp_path / "j", compact_bytes=2000)
    async with served(held):
        for event in [m.Join(A, "moot"), *[m.HealthCheck(A)] * 50]:
            if together:
                await held.submit(event)
            else:
                held.take(event)
    journal = Journal(tmp_path / "j")
    assert len(journal.records) < 40
    journal.close()
    assert state_of(tmp_path / "j") == coordinator.encode(held.state)


def test_a_refused_event_is_told_and_leaves_no_record(tmp_path: Path) -> None:
    held = Held(tmp_path / "j")
    size = held.journal.size
    refused = held.take(m.Ready(A, 0)).refused
    assert refused == m.refusal(m.Reason.WrongState)
    assert [step.effects for step in held.steps] == [(refused,)]
    assert held.journal.size == size
    held.close()


def test_what_was_recorded_and_perhaps_not_carried_out_is_handed_back(tmp_path: Path) -> None:
    """The holder dies while it acts; whoever follows hears of it, until something newer is kept."""

    def die(step: Step) -> None:
        raise KeyboardInterrupt

    held = Held(tmp_path / "j")
    held.take(EVENTS[0])
    held._act = die
    with pytest.raises(KeyboardInterrupt):
        held.take(EVENTS[1])
    held.close()
    for _ in range(2):
        back = Held(tmp_path / "j")
        back.close()
        assert coordinator.encode(back.state) == coordinator.encode(held.state)
        assert m.ClientJoined(B) in back.unfinished
        assert m.ClientJoined(A) not in back.unfinished
        assert m.EpochStarted(0, 2) in back.unfinished
    back = Held(tmp_path / "j")
    back.take(m.HealthCheck(A))
    back.close()
    last = Held(tmp_path / "j")
    last.close()
    assert last.unfinished == ()


async def test_an_old_holder_decides_nothing_once_another_took_over(tmp_path: Path) -> None:
    old = Held(tmp_path / "j")
    old.take(EVENTS[0])
    new = Held(tmp_path / "j", take_over=True)
    assert new.epoch > old.epoch
    before = len(old.steps)
    with pytest.raises(Fenced):
        old.take(EVENTS[1])
    assert (len(old.steps), len(old.state.pending)) == (before, 1), "it acted on nothing"
    new.take(EVENTS[1])
    assert new.state.phase is Phase.Warmup
    async with asyncio.timeout(60):
        serving = asyncio.create_task(old.serve())
        with pytest.raises(asyncio.CancelledError):
            await old.submit(EVENTS[1])
        with pytest.raises(Fenced):
            await serving
    new.close()
    assert state_of(tmp_path / "j") == coordinator.encode(new.state)


async def test_a_full_disk_stops_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(durable, "RETRY", 0.01)
    held = Held(tmp_path / "j")
    write = held.journal.append
    full = [OSError(errno.ENOSPC, "No space left on device")] * 2

    def append(record: bytes) -> None:
        if full:
            raise full.pop()
        write(record)

    monkeypatch.setattr(held.journal, "append", append)
    with pytest.raises(OSError, match="No space"):
        held.take(EVENTS[0])
    assert len(held.state.pending) == 0, "nothing was decided, since nothing could be kept"
    async with served(held), asyncio.timeout(60):
        with pytest.raises(OSError, match="No space"):
            await held.submit(EVENTS[0])
        assert await held.submit(EVENTS[0]) is None
    assert "cannot be written" in caplog.text
    assert state_of(tmp_path / "j") == coordinator.encode(held.state)


def test_a_journal_of_another_owner_or_version_is_refused(tmp_path: Path) -> None:
    Held(tmp_path / "j").close()
    with pytest.raises(JournalError, match="belongs to 'moot', not to 'another'"):
        Held(tmp_path / "j", owner="another")
    journal = Journal(tmp_path / "other")
    journal.begin(b"\xc1 nothing that we wrote")
    journal.close()
    with pytest.raises(JournalError, match="this version cannot read"):
        Held(tmp_path / "other")


def test_any_machine_can_be_held(tmp_path: Path) -> None:
    def hold() -> Durable[federation.State]:
        create = lambda: federation.create(Rules(rounds=2))  # noqa: E731 - a value among values
        journal = Journal(tmp_path / "j")
        return Durable(federation, journal, "digits", create, lambda step: None, draw=lambda: 7)

    held = hold()
    held.take(f.Rendezvous("a"))
    held.take(f.Delivered("a", 0, "digest", 3))
    held.close()
    back = hold()
    back.close()
    assert federation.encode(back.state) == federation.encode(held.state)
    assert back.unfinished == (f.Counted("0/a", again=False), f.Aggregate(0, ("0/a",)))


@pytest.mark.parametrize("moments", range(5))
async def test_what_comes_while_it_is_told_to_end_does_not_keep_it(
    tmp_path: Path, moments: int
) -> None:
    held = Held(tmp_path / "journal")
    serving = asyncio.create_task(held.serve())
    for _ in range(10):
        await asyncio.sleep(0)
    held.wake()
    for _ in range(moments):
        await asyncio.sleep(0)
    serving.cancel()
    await asyncio.wait([serving], timeout=60)
    assert serving.cancelled()
