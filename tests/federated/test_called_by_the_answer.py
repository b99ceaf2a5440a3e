"""Who delivers may wait for what comes next in the same request, and needs no heartbeat for it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from folkmoot.core.federation import messages as m
from folkmoot.federated import wire
from folkmoot.federated.participant import participation
from folkmoot.federated.participant.connection import Connection
from support.federation import ManualParticipant, PlusOne, RunningFederation, running_federation

PATIENCE = 60.0
LONG = round(PATIENCE * 1000)


async def delivering(w: RunningFederation, who: ManualParticipant) -> asyncio.Task[Any]:
    """Its update is counted, and it waits for what comes next."""
    held, _ = w.held_and_gone()
    told = asyncio.create_task(who.deliver(1.0, wait_ms=LONG))
    await asyncio.wait_for(held.wait(), PATIENCE)
    assert len(w.state.deliveries) == 1
    return told


async def test_it_is_called_to_the_next_round_with_its_task(tmp_path: Path) -> None:
    rules = {"min_participants": 2, "heartbeat_time": 4 * PATIENCE}
    async with running_federation(tmp_path, **rules) as w:
        a, b = await w.join("a", "b")
        told = await delivering(w, a)
        await b.deliver(3.0)
        news = (await told).news
        assert (wire.STATE_NAME[news.state], news.round, news.expected) == ("ROUND", 1, True)
        assert news.task == await a.start(1)


async def test_it_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, _ = await w.join("a", "b")
        news = (await a.deliver(1.0, wait_ms=50)).news
        assert (wire.STATE_NAME[news.state], news.round, news.expected) == ("ROUND", 0, False)
        assert not news.HasField("task")


async def test_who_does_not_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, _ = await w.join("a", "b")
        assert not (await a.deliver(1.0)).HasField("news")


async def test_what_it_delivered_counts_though_it_has_to_leave(tmp_path: Path) -> None:
    rules = {"min_participants": 2, "heartbeat_time": 4 * PATIENCE}
    async with running_federation(tmp_path, **rules) as w:
        a, b = await w.join("a", "b")
        told = await delivering(w, a)
        w.coordinator.submit(m.Dropped((a.participant_id, b.participant_id)))
        assert not (await told).HasField("news")


async def test_who_says_it_again_hears_of_the_next_round_as_well(tmp_path: Path) -> None:
    rules = {"min_participants": 2, "heartbeat_time": 4 * PATIENCE}
    async with running_federation(tmp_path, **rules) as w:
        a, b = await w.join("a", "b")
        digest = a.upload(1.0)
        await a.end(digest)
        held, _ = w.held_and_gone()
        told = asyncio.create_task(a.end(digest, wait_ms=LONG))
        await asyncio.wait_for(held.wait(), PATIENCE)
        await b.deliver(3.0)
        answer = await told
        assert (answer.again, answer.news.round) == (True, 1)


async def test_the_end_is_heard_as_well(tmp_path: Path) -> None:
    rules = {"min_participants": 2, "rounds": 1, "heartbeat_time": 4 * PATIENCE}
    async with running_federation(tmp_path, **rules) as w:
        a, b = await w.join("a", "b")
        told = await delivering(w, a)
        await b.deliver(3.0)
        assert wire.STATE_NAME[(await told).news.state] == "FINISHED"
        assert await b.beat() == ("FINISHED", 1)
        await asyncio.wait_for(w.server.service.all_told.wait(), PATIENCE)


async def test_a_short_round_of_the_sdk_is_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(participation, "SHORT_ROUND", PATIENCE)
    asked: Counter[str] = Counter()

    class Counting(Connection):
        async def call(self, method: str, *more: Any) -> Any:
            asked[method] += 1
            return await super().call(method, *more)

    rules = {"min_participants": 2, "rounds": 8, "heartbeat_time": 4 * PATIENCE}
    async with running_federation(tmp_path, **rules) as w:
        both = (w.take_part(PlusOne(), Counting), w.take_part(PlusOne(), Counting))
        await asyncio.gather(*both)
        await w.server.finished()
        assert list(await w.global_of(8)) == [7.0]
    assert asked["EndTrainingRound"] == 2 * 8
    assert asked["StartTrainingRound"] == 2, "the first task is asked for"
    assert asked["Heartbeat"] <= 4, "the first call, and perhaps one that hears of no round"
