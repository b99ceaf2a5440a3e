"""How the coordinator of the published design behaves, over real gRPC on loopback."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from folkmoot.core.federation import messages as m
from folkmoot.federated import wire
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.participant import Participant
from support.federation import RunningFederation, code_of, floats, running_federation

Code = grpc.StatusCode


async def test_a_participant_is_accepted(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        assert (await w.participant("a").rendezvous()).reply == wire.ACCEPT
        assert w.state.members == (w.state.members[0],)


@pytest.mark.parametrize(("fraction", "room"), [(1.0, 1), (0.5, 2)])
async def test_a_participant_too_many_hears_later(
    tmp_path: Path, fraction: float, room: int
) -> None:
    async with running_federation(tmp_path, fraction_participants=fraction) as w:
        await w.join(*"abc"[:room])
        assert (await w.participant("d").rendezvous()).reply == wire.LATER


async def test_a_latecomer_is_taken_when_there_is_room(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        late = w.participant("late")
        assert (await late.rendezvous()).reply == wire.LATER
        w.coordinator.submit(m.Dropped((a.participant_id,)))
        assert (await late.rendezvous()).reply == wire.ACCEPT


async def test_the_round_begins_when_enough_are_connected(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        (a,) = await w.join("a")
        assert await a.beat() == ("STANDBY", 0)
        await w.join("b")
        assert await a.beat() == ("ROUND", 0)


async def test_a_selected_participant_is_told_epochs_and_epoch_base(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=3, epochs=7) as w:
        (a,) = await w.join("a")
        started = await a.start()
        assert (started.epochs, started.epoch_base, started.initial) == (0, 0, True)
        await a.deliver(1.0, samples=0)
        await w.global_of(1)
        started = await a.start(1)
        assert (started.epochs, started.epoch_base, started.initial) == (7, 0, False)
        await a.deliver(2.0, 1)
        await w.global_of(2)
        assert (await a.start(2)).epoch_base == 7


async def test_an_update_is_read_from_exactly_its_senders_key(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, b = await w.join("a", "b")
        await a.deliver(4.0)
        assert list(w.state.deliveries) == [f"0/{a.participant_id}"]
        assert [e.key for e in w.bucket.list("0")] == [f"0/{a.participant_id}"]
        await b.deliver(6.0)
        assert await w.global_of(1) == [5.0]


async def test_the_round_number_grows_only_after_the_last_update(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2, rounds=3, epochs=5) as w:
        a, b = await w.join("a", "b")
        for round_, base in ((0, 0), (1, 0), (2, 5)):
            assert (w.state.round, w.state.epoch_base) == (round_, base)
            await a.deliver(1.0, round_)
            assert (w.state.round, w.state.epoch_base) == (round_, base)
            await b.deliver(1.0, round_)
            await w.global_of(round_ + 1)
        assert w.state.epoch_base == 10


async def test_nothing_of_a_round_is_left_in_the_next(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        await a.deliver(1.0)
        await w.global_of(1)
        assert w.state.deliveries == {}


async def test_the_federation_is_finished_after_its_rounds(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=2) as w:
        (a,) = await w.join("a")
        for round_ in range(2):
            await a.deliver(1.0, round_)
            await w.global_of(round_ + 1)
        await w.server.finished()
        assert await a.beat() == ("FINISHED", 2)


async def test_who_is_unknown_is_denied(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        await w.join("a")
        stranger = w.participant("stranger")
        await stranger.rendezvous()
        assert await code_of(stranger.beat()) == Code.PERMISSION_DENIED
        assert await code_of(stranger.start()) == Code.PERMISSION_DENIED
        assert await code_of(stranger.deliver(1.0)) == Code.PERMISSION_DENIED


async def test_a_second_different_update_already_exists(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, _ = await w.join("a", "b")
        await a.deliver(1.0)
        assert await code_of(a.deliver(2.0)) == Code.ALREADY_EXISTS


async def test_a_drop_out_goes_back_to_standby_and_a_return_resumes(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, b = await w.join("a", "b")
        w.coordinator.submit(m.Dropped((b.participant_id,)))
        assert await a.beat() == ("STANDBY", 0)
        assert w.state.selected == ()
        assert (await b.rendezvous()).reply == wire.ACCEPT
        assert await a.beat() == ("ROUND", 0)


async def test_two_at_a_fraction_of_six_tenths_need_three_and_select_two(tmp_path: Path) -> None:
    rules = {"min_participants": 2, "fraction_participants": 0.6}
    async with running_federation(tmp_path, **rules) as w:
        people = await w.join("a", "b")
        assert await people[0].beat() == ("STANDBY", 0)
        people += await w.join("c")
        assert len(w.state.selected) == 2
        told = [await h.beat() for h in people]
        assert sorted(told) == [("ROUND", 0), ("ROUND", 0), ("STANDBY", 0)]


async def test_survivors_stay_selected_when_the_round_is_topped_up(tmp_path: Path) -> None:
    rules = {"min_participants": 3, "fraction_participants": 0.5, "quorum": 0.5}
    async with running_federation(tmp_path, **rules) as w:
        await w.join(*"abcdef")
        kept, *gone = w.state.selected
        w.coordinator.submit(m.Dropped(tuple(gone)))
        assert kept in w.state.selected
        assert len(w.state.selected) == 5
        assert len(w.state.outstanding()) == 3


async def test_silence_is_noticed_once(tmp_path: Path) -> None:
    times = {"heartbeat_time": 0.05, "heartbeat_timeout": 0.05}
    async with running_federation(tmp_path, min_participants=2, **times) as w:
        await w.join("a")
        await w.coordinator.until(lambda s: not s.members)
        left = [e for e in w.coordinator.seen if isinstance(e, m.Left)]
        assert [e.reason for e in left] == ["silent"]


async def test_a_hundred_silences_at_once_are_all_noticed(tmp_path: Path) -> None:
    times = {"heartbeat_time": 1.0, "heartbeat_timeout": 0.5}
    async with running_federation(tmp_path, min_participants=101, **times) as w:
        await asyncio.gather(*(w.join(f"p{i}") for i in range(100)))
        await w.coordinator.until(lambda s: not s.members)
        left = [effect.id for effect in w.coordinator.seen if isinstance(effect, m.Left)]
        assert len(left) == len(set(left)) == 100


async def test_a_heartbeat_prolongs_a_life(tmp_path: Path) -> None:
    times = {"heartbeat_time": 1.0, "heartbeat_timeout": 1.0}
    async with running_federation(tmp_path, min_participants=3, **times) as w:
        a, b = await w.join("a", "b")

        async def live() -> None:
            while True:
                await a.beat(wait_ms=100)

        alive = asyncio.create_task(live())
        await w.coordinator.until(lambda s: b.participant_id not in s.members)
        alive.cancel()
        assert w.state.members == (a.participant_id,)


async def test_a_held_heartbeat_is_answered_the_moment_the_round_begins(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2, heartbeat_time=1000) as w:
        (a,) = await w.join("a")
        held = asyncio.create_task(a.beat(wait_ms=900_000, seen_state=0, seen_round=0))
        await w.join("b")
        assert await held == ("ROUND", 0)


async def test_ten_participants_make_a_round_and_its_model_only_with_the_last(
    tmp_path: Path,
) -> None:
    async with running_federation(tmp_path, min_participants=10) as w:
        people = await w.join(*"abcdefghi")
        assert {await h.beat() for h in people} == {("STANDBY", 0)}
        people += await w.join("j")
        assert {await h.beat() for h in people} == {("ROUND", 0)}
        for value, one in enumerate(people[:-1]):
            await one.start()
            await one.deliver(value)
            assert w.bucket.list("1") == []
        await people[-1].deliver(9.0)
        assert await w.global_of(1) == [4.5]


class Adds(Participant):
    def __init__(self, by: float, samples: int) -> None:
        self.by, self.samples = by, samples
        self.calls: list[tuple[int, int]] = []

    def init_weights(self) -> np.ndarray:
        return np.zeros(4, np.float32)

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        self.calls.append((epochs, epoch_base))
        return weights + np.float32(self.by), self.samples, {"loss": [1.0] * epochs}


async def test_participants_of_the_sdk_go_through_all_rounds_and_stop(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2, rounds=3, epochs=2) as w:
        parts = [Adds(1.0, samples=1), Adds(5.0, samples=3)]
        await asyncio.gather(*map(w.take_part, parts))
        assert w.state.phase == "FINISHED"
        np.testing.assert_array_equal(await w.global_of(3), floats([8.0] * 4))
        assert parts[0].calls == parts[1].calls == [(2, 0), (2, 2)]


async def requests_of_one(w: RunningFederation, method: str) -> list[Any]:
    """What a participant of the SDK asks by this method, until it is over."""
    asked: list[Any] = []

    class Recorded(Connection):
        async def call(self, name: str, request: object, limit: float = 30.0) -> object:
            if name == method:
                asked.append(request)
            return await super().call(name, request, limit)

    await w.take_part(Adds(1.0, 1), Recorded)
    return asked


async def test_the_sdk_says_ready_and_minus_one_at_first(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=1) as w:
        first, *_ = await requests_of_one(w, "Heartbeat")
    assert (wire.STATE_NAME[first.state], first.round) == ("READY", -1)


async def test_an_unweighted_mean_makes_the_first_weights(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, b = await w.join("a", "b")
        await a.deliver(1.0, samples=0)
        await b.deliver(2.0, samples=0)
        assert await w.global_of(1) == [1.5]


async def test_updates_weigh_by_their_samples_once_there_is_a_model(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, b = await w.join("a", "b")
        await a.deliver(1.0, samples=1)
        await b.deliver(5.0, samples=3)
        assert await w.global_of(1) == [3.0]
        await a.deliver(1.0, 1, samples=1)
        await b.deliver(5.0, 1, samples=3)
        assert await w.global_of(2) == [4.0]


async def test_a_call_to_a_round_says_its_task_to_whom_it_concerns_and_who_asks(
    tmp_path: Path,
) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, b = await w.join("a", "b")
        beat = wire.HeartbeatRequest
        told = (await a.call("Heartbeat", beat(want_task=True))).task
        assert told == await a.start(0)
        assert not (await a.call("Heartbeat", beat())).HasField("task")
        await a.deliver(1.0, samples=0)
        assert not (await a.call("Heartbeat", beat(want_task=True))).HasField("task")
        await b.deliver(3.0, samples=0)
        await w.global_of(1)
        told = (await a.call("Heartbeat", beat(want_task=True))).task
        assert told.round == 1
        assert told == await a.start(1)


async def test_a_participant_of_the_sdk_asks_at_first_and_is_told_later_rounds(
    tmp_path: Path,
) -> None:
    async with running_federation(tmp_path, rounds=5) as w:
        asked = [request.round for request in await requests_of_one(w, "StartTrainingRound")]
        np.testing.assert_array_equal(await w.global_of(5), floats([4.0] * 4))
    # The heartbeat that calls to round 1 was on its way before the first answer.
    assert asked[0] == 0
    assert set(asked) <= {0, 1}
