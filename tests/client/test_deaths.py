"""Nobody waits for the dead: here every limit of the run is longer than the test may take."""

import asyncio
import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folkmoot.authority import Authority
from folkmoot.authority.open import open_authority
from folkmoot.client import events
from folkmoot.client.learner import Cancelled, Learner, Worked
from folkmoot.client.results import IS_THERE
from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.client import waiting
from folkmoot.host.signing import Identity
from folkmoot.learning.checkpoints.manifest import NotWanted
from support.authorities import ServerKeeper
from support.small_run import PATIENCE, RunMember, StartRun, agreement
from support.small_run import small_run as served_run

THREE = {"init_min_clients": 3, "rounds_per_epoch": 8, "round_witness_time": PATIENCE}


@pytest.mark.parametrize("delay", [0, 1])
async def test_a_client_that_dies_in_a_round_is_called_gone_and_its_work_done_by_others(
    tmp_path: Path, small_run: StartRun, delay: int
) -> None:
    async with small_run(tmp_path, delay=delay, **THREE) as run:
        *others, dies = await run.join(3)
        await run.until(run.in_round(2))
        await dies.end()
        await run.until(run.finished)
        assert run.removed() == [(dies.id, "Gone")]
        assert run.state.progress.step == 6
        agreement(others)


class Hangs(Learner):
    """Is caught in its second step for good, as under SIGSTOP."""

    def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
        if step:
            raise Cancelled
        return super().train(step, share, stopped)


def answers_nobody(who: RunMember) -> None:
    async def never(asker: bytes, question: bool) -> bool:
        await asyncio.Event().wait()
        return True

    who.peer.answer(IS_THERE, never)


async def test_a_client_that_hangs_is_called_gone(tmp_path: Path, small_run: StartRun) -> None:
    async with small_run(tmp_path, **THREE) as run:
        others = await run.join(2)
        (hangs,) = await run.join(learner=Hangs, prepare=answers_nobody)
        await run.until(lambda: run.removed())
        assert run.removed() == [(hangs.id, "Gone")]
        await run.until(lambda: run.state.progress.step >= 4)
        agreement(others)


async def test_nobody_waits_for_one_that_says_goodbye(tmp_path: Path, small_run: StartRun) -> None:
    async with small_run(tmp_path, **THREE) as run:
        *others, leaves = await run.join(3)
        await run.until(run.in_round(2))
        await leaves.leave()
        await run.until(run.finished)
        assert run.removed() == [(leaves.id, "Withdrew")]
        agreement(others)


async def test_a_client_that_dies_while_it_loads_is_called_gone(
    tmp_path: Path, small_run: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SILENCE_WHILE_LOADING", 1000)

    def never_loads(who: RunMember) -> None:
        who.member.models.load = lambda action: asyncio.Event().wait()

    async with small_run(tmp_path, total_steps=2, **THREE) as run:
        others = await run.join(2)
        (dies,) = await run.join(prepare=never_loads)
        await run.until(lambda: all(who.all(events.ModelLoaded) for who in others))
        await run.until(run.in_phase(Phase.Warmup))  # in a store, others may see it before us
        await dies.end()
        await run.until(run.finished)
        assert run.removed() == [(dies.id, "Gone")]


async def test_another_stores_the_model_when_the_checkpointer_dies(
    tmp_path: Path, small_run: StartRun
) -> None:
    storing, places = threading.Event(), itertools.count()

    class DiesStoring(Learner):
        def save(self, store: Any, step: int, stopped: Callable[[], bool]) -> str:
            if next(places):
                return super().save(store, step, stopped)
            storing.set()
            while not stopped():
                threading.Event().wait(0.01)
            raise NotWanted

    kept = str(tmp_path / "kept")
    async with small_run(tmp_path, total_steps=2, checkpoint=kept, **THREE) as run:
        members = await run.join(3, learner=DiesStoring)
        await asyncio.to_thread(storing.wait, PATIENCE)
        (dies,) = [who for who in members if who.member.client.phase == "Storing"]
        await dies.end()
        await run.until(run.finished)
        assert run.removed() == [(dies.id, "Gone")]
        assert [e.step for e in run.all(m.CheckpointStored)] == [2]


async def test_one_that_is_slow_and_answers_is_waited_for(
    tmp_path: Path, small_run: StartRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "SILENCE_WHILE_LOADING", 400)

    class Slow(Learner):
        def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
            if step == 0:
                threading.Event().wait(2.0)
            return super().train(step, share, stopped)

    async with small_run(tmp_path, **THREE) as run:
        others = await run.join(2)
        (slow,) = await run.join(learner=Slow)
        await run.until(run.finished)
        assert run.removed() == []
        assert [e.owed for e in run.all(m.RoundJudged)] == [0] * 6
        agreement([*others, slow])


class OneEach(ServerKeeper):
    """A server that knows which process is the member with a key, as `folkmoot join` has it."""

    def open(self, identity: Identity) -> Authority:
        url = f"server://127.0.0.1:{self._listening.port}"
        return open_authority(url, self.state.run.run_id, identity, member=True)


async def test_a_server_tells_the_others_who_hung_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Else they may find out themselves first, and who is no member any more is not told of.
    for name in ("SILENCE_WHILE_LOADING", "SHORTEST_SILENCE", "LONGEST_SILENCE"):
        monkeypatch.setattr(waiting, name, 200_000)
    told: dict[bytes, tuple[bytes, ...]] = {}
    async with served_run(tmp_path, authority=OneEach, **THREE) as run:

        def listen(who: RunMember) -> None:
            tell = who.authority.on_hung_up

            def on_hung_up(peers: tuple[bytes, ...]) -> None:
                tell(peers)
                told[who.id] = peers
                run.news.set()

            who.authority.on_hung_up = on_hung_up

        *others, dies = await run.join(3, prepare=listen)
        await run.until(run.in_round(2))
        await dies.end()
        await run.until(lambda: len(told) == 2)
        assert told == {who.id: (dies.id,) for who in others}


async def test_a_server_that_says_of_the_living_that_they_hung_up_removes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy machine makes nobody silent, nor too late; who would not be asked would be silent.
    monkeypatch.setattr(waiting, "SHORTEST_SILENCE", 4000)
    monkeypatch.setattr(waiting, "GRACE", 200_000)
    loop = asyncio.get_running_loop()

    class SlowAndSlandered(Learner):
        def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
            for _ in range(30 if step == 3 else 0):
                for who in others:
                    loop.call_soon_threadsafe(who.authority.on_hung_up, (slow.id,))
                threading.Event().wait(0.1)
            return super().train(step, share, stopped)

    async with served_run(tmp_path, **THREE) as run:
        others = await run.join(2)
        (slow,) = await run.join(learner=SlowAndSlandered)
        await run.until(run.finished)
        assert run.removed() == []
        agreement([*others, slow])
