"""What a keeper shows of a run, and its time. That nothing is lost: tests/host/test_durable.py."""

import asyncio
from pathlib import Path

import pytest

from folkmoot.authority.server.keeper import COME_BACK, Keeper
from folkmoot.core.coordinator import Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.host import clock
from folkmoot.host.tasks import end_tasks

RUN = Run(
    run_id="moot",
    config=CoordinatorConfig(total_steps=4, min_clients=2, delay=0, warmup_time=0.05),
    model=Model(checkpoint="store/"),
)
A, B = b"a" * 32, b"b" * 32


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
    await end_tasks([serving])


async def stopped_keeper(path: Path) -> Keeper:
    """One that was joined and has ended."""
    keeper = Keeper(RUN, path)
    serving = asyncio.create_task(keeper.serve())
    await keeper.submit(m.Join(A, "moot"))
    await end_tasks([serving])
    return keeper


async def test_the_clock_of_a_run_stands_still_while_nobody_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.journal"
    stopped = (await stopped_keeper(path)).now()
    away, wall = clock.time.monotonic, clock.time.time_ns
    monkeypatch.setattr(clock.time, "monotonic", lambda: away() + 3600)
    monkeypatch.setattr(clock.time, "time_ns", lambda: wall() + 3600 * 10**9)
    back = Keeper(RUN, path)
    assert back.now() <= stopped + 1000
    back.close()


async def test_the_clock_of_a_run_waits_for_clients_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.journal"
    await stopped_keeper(path)
    time, begun = clock.time.monotonic, clock.time.monotonic()
    monkeypatch.setattr(clock.time, "monotonic", lambda: begun)
    back = Keeper(RUN, path)
    stood = back.now()
    monkeypatch.setattr(clock.time, "monotonic", lambda: begun + COME_BACK - 0.1)
    assert back.now() == stood
    monkeypatch.setattr(clock.time, "monotonic", lambda: begun + COME_BACK + 1)
    assert back.now() == stood + 1000
    monkeypatch.setattr(clock.time, "monotonic", time)
    back.close()
