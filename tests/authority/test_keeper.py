"""What a keeper has answered is on the disk, whenever it dies."""

import asyncio
import shutil
from pathlib import Path

import pytest

from folkmoot.authority.server import keeper as keeping
from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import Phase, Run, encode
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.host.journal import Journal, JournalError

RUN = Run(
    run_id="moot",
    config=CoordinatorConfig(total_steps=4, min_clients=2, delay=0, warmup_time=0.05),
    model=Model(checkpoint="store/"),
)
A, B = b"a" * 32, b"b" * 32


async def until(keeper: Keeper, wanted: Phase) -> None:
    async with asyncio.timeout(120):
        async for _, state in keeper.watch():
            if state.phase is wanted:
                return


async def test_every_prefix_of_the_journal_is_a_state_that_was(tmp_path: Path) -> None:
    """Cut the journal after any record: what comes back is exactly the state of that moment."""
    path = tmp_path / "run.journal"
    keeper = Keeper(RUN, path)
    states: list[bytes] = [encode(keeper.state)]
    copies: list[Path] = [_copy(path, tmp_path / "0")]
    serving = asyncio.create_task(keeper.serve())
    steps = [m.Join(A, "moot"), m.Join(B, "moot"), m.HealthCheck(A), m.HealthCheck(B, (), 5)]
    for number, message in enumerate(steps, 1):
        assert await keeper.submit(message) is None
        states.append(encode(keeper.state))
        copies.append(_copy(path, tmp_path / str(number)))
    await until(keeper, Phase.RoundTrain)
    states.append(encode(keeper.state))
    copies.append(_copy(path, tmp_path / "last"))
    await _end(serving)
    for state, copy in zip(states, copies, strict=True):
        back = Keeper(RUN, copy)
        assert encode(back.state) == state
        back._journal.close()


async def test_who_waits_is_told_in_time_or_with_what_matters_more(tmp_path: Path) -> None:
    keeper = Keeper(RUN, tmp_path / "run.journal")
    serving = asyncio.create_task(keeper.serve())
    soon, late = keeper.watch(lambda: 0.01), keeper.watch(lambda: 1e6)
    async with asyncio.timeout(120):
        for watch in (soon, late):
            await anext(watch)
        told = asyncio.ensure_future(anext(late))
        await keeper.submit(m.Join(A, "moot"))
        assert [p.id for p in (await anext(soon))[1].pending] == [A]
        assert not told.done(), "one who waits is no hurry"
        await keeper.submit(m.Pause())
        _, shown = await told
    assert (shown.phase, len(shown.pending)) == (Phase.Paused, 1)
    await _end(serving)


async def test_a_record_that_was_cut_off_is_as_if_it_was_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    keeper = Keeper(RUN, path)
    serving = asyncio.create_task(keeper.serve())
    await keeper.submit(m.Join(A, "moot"))
    size = keeper._journal.size
    before = encode(keeper.state)
    await keeper.submit(m.Join(B, "moot"))
    end = keeper._journal.size
    await _end(serving)
    whole = path.read_bytes()
    for cut in range(size, end, 7):
        path.write_bytes(whole[:cut] + bytes(len(whole) - cut))
        back = Keeper(RUN, path)
        assert encode(back.state) == before
        back._journal.close()


async def test_a_long_journal_becomes_one_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "COMPACT_BYTES", 2000)
    path = tmp_path / "run.journal"
    keeper = Keeper(RUN, path)
    serving = asyncio.create_task(keeper.serve())
    await keeper.submit(m.Join(A, "moot"))
    for _ in range(50):
        await keeper.submit(m.HealthCheck(A))
    state = encode(keeper.state)
    await _end(serving)
    journal = Journal(path)
    assert len(journal.records) < 40
    journal.close()
    back = Keeper(RUN, path)
    assert encode(back.state) == state
    back._journal.close()


async def test_the_clock_of_a_run_stands_still_while_nobody_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.journal"
    keeper = Keeper(RUN, path)
    serving = asyncio.create_task(keeper.serve())
    await keeper.submit(m.Join(A, "moot"))
    await _end(serving)
    stopped = keeper.now()
    away = keeping.time.monotonic
    monkeypatch.setattr(keeping.time, "monotonic", lambda: away() + 3600)
    back = Keeper(RUN, path)
    assert back.now() <= stopped + 1000
    back._journal.close()


async def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.journal"
    Keeper(RUN, path)._journal.close()
    other = Run(run_id="another", config=RUN.config, model=RUN.model)
    with pytest.raises(JournalError, match="belongs to run 'moot', not to 'another'"):
        Keeper(other, path)


async def test_two_keepers_cannot_hold_one_journal(tmp_path: Path) -> None:
    keeper = Keeper(RUN, tmp_path / "run.journal")
    with pytest.raises(JournalError, match="in use by another"):
        Keeper(RUN, tmp_path / "run.journal")
    keeper._journal.close()


def _copy(path: Path, folder: Path) -> Path:
    folder.mkdir()
    return Path(shutil.copy(path, folder / "run.journal"))


async def _end(serving: asyncio.Task[None]) -> None:
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
