"""One participant that lies, stalls or floods neither stops a round nor takes it over."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from folkmoot.core.federation.state import Delivery
from folkmoot.exchange.bucket import Bucket
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.fedopt import FedAdam
from folkmoot.federated.aggregate.private import Private
from folkmoot.federated.coordinator.bucket import CoordinatorBucket
from folkmoot.federated.coordinator.config import SecurityConfig, ServerConfig
from folkmoot.federated.coordinator.events import Reported, UpdateSpoiled
from folkmoot.federated.coordinator.turns import Rate, Turns
from folkmoot.federated.coordinator.updates import combine
from folkmoot.federated.model_file.reader import ModelFile
from support.federation import (
    code_of,
    federation_config,
    floats,
    logged,
    refusal,
    running_federation,
    with_bucket,
)
from support.models import save_model
from support.servers import S3Server

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("strategy", "dtype", "value"),
    [
        (FedAdam(), np.float32, 1e25),
        (FedAdam(), np.float32, -1e25),
        (FedAvg(), np.float64, 1.7e308),
        (FedAvg(), np.float64, -1.7e308),
    ],
)
async def test_an_update_that_spoils_the_model_is_taken_out_and_the_round_goes_on(
    tmp_path: Path, strategy: Any, dtype: Any, value: float
) -> None:
    save_model(tmp_path / "first", {"weights": np.zeros(3, dtype)})
    config = federation_config(
        tmp_path,
        {"rounds": 9, "min_participants": 2, "spares": 1, "max_strikes": 2},
        aggregation=strategy,
        initial_weights="first",
    )
    async with running_federation(tmp_path, config) as w:
        a, b, evil = await w.join("a", "b", "evil")
        for round_ in range(3):
            for one in (evil, a, b):
                if one.participant_id in w.state.selected:
                    bad = one is evil
                    values = np.full(3, value if bad else 1.0, dtype)
                    await one.deliver({"weights": values}, round_, samples=10 if bad else 2)
            assert np.isfinite(await w.global_of(round_ + 1)).all()
        assert evil.participant_id in w.state.expelled
        spoiled = logged(tmp_path / "state", UpdateSpoiled)
        assert {record.id for record in spoiled} == {evil.participant_id}
        assert "cannot hold" in spoiled[0].reason


async def test_first_weights_count_all_the_same_whatever_samples_are_claimed(
    tmp_path: Path,
) -> None:
    async with running_federation(tmp_path, min_participants=3) as w:
        a, b, evil = await w.join("a", "b", "evil")
        await a.deliver(1.0, samples=0)
        await b.deliver(2.0, samples=0)
        await evil.deliver(6.0, samples=1)
        assert await w.global_of(1) == [3.0]


@pytest.mark.parametrize(("most", "expected"), [(10.0, 10.0), (1.0, 4.0), (0.0, 12.0)])
async def test_nobody_counts_for_more_than_its_share(
    tmp_path: Path, most: float, expected: float
) -> None:
    save_model(tmp_path / "first", {"weights": floats(0.0)})
    security = SecurityConfig(max_weight=most)
    config = federation_config(
        tmp_path, {"min_participants": 3}, security=security, initial_weights="first"
    )
    async with running_federation(tmp_path, config) as w:
        a, b, evil = await w.join("a", "b", "evil")
        await a.deliver(0.0, samples=7)
        await b.deliver(0.0, samples=7)
        await evil.deliver(12.0, samples=1 << 29)
        assert (await w.global_of(1))[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("store", ["folder", "s3"])
async def test_what_is_combined_is_what_was_judged(
    tmp_path: Path, store: str, request: pytest.FixtureRequest
) -> None:
    """Two announcements at once, and another object in the bucket between them."""
    config = federation_config(tmp_path, {"min_participants": 2})
    if store == "s3":
        s3: S3Server = request.getfixturevalue("s3_server")
        config = with_bucket(config, url=s3.new_bucket(), options=s3.options)
    async with running_federation(tmp_path, config) as w:
        a, evil = await w.join("a", "evil")
        taken, go, heard = asyncio.Event(), threading.Event(), asyncio.Event()
        loop, take = asyncio.get_running_loop(), w.coordinator.store.take

        def held(*arguments: Any) -> Any:
            path = take(*arguments)
            if not taken.is_set():
                loop.call_soon_threadsafe(taken.set)
                assert go.wait(60)
            return path

        w.coordinator.store.take = held
        first = asyncio.create_task(evil.end(await asyncio.to_thread(evil.upload, 1.0)))
        await taken.wait()
        digest = await asyncio.to_thread(evil.upload, {"weights": floats([np.nan])})
        hear = w.coordinator.heard
        w.coordinator.heard = lambda id: (hear(id), heard.set())
        second = asyncio.create_task(evil.end(digest))
        await heard.wait()
        go.set()
        await first
        assert await code_of(_result(second)) == Code.ALREADY_EXISTS
        await a.deliver(3.0)
        assert await w.global_of(1) == [2.0]


async def _result(task: "asyncio.Task[Any]") -> Any:
    return await task


async def test_wrong_digests_are_not_free(tmp_path: Path) -> None:
    async with running_federation(tmp_path, max_strikes=3) as w:
        (evil,) = await w.join("evil")
        for _ in range(3):
            evil.upload(1.0)
            assert await code_of(evil.end(bytes(32))) == Code.DATA_LOSS
        assert w.state.expelled == (evil.participant_id,)


async def test_who_only_beats_is_left_out_of_a_default_round(tmp_path: Path) -> None:
    rules = {"rounds": 5, "min_participants": 2, "spares": 1, "straggler_time": 0.3}
    save_model(tmp_path / "first", {"weights": floats(0.0)})
    config = federation_config(tmp_path, rules, initial_weights="first")
    async with running_federation(tmp_path, config) as w:
        a, b, idle = await w.join("a", "b", "idle")
        beats = asyncio.create_task(idle.beat_for_ever())
        for round_ in range(4):
            for one in (a, b):
                if one.participant_id in w.state.selected:
                    await one.deliver(1.0, round_)
            await w.global_of(round_ + 1)
        code, reason = await refusal(_result(beats))
        assert (code, "not connected" in reason) == (Code.PERMISSION_DENIED, True)


async def test_two_heartbeats_that_wait_do_not_wake_each_other_for_ever(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        (a,) = await w.join("a")
        asked = 0
        changed = w.coordinator.changed

        async def counted(id: str, patience: float) -> bool:
            nonlocal asked
            asked += 1
            return await changed(id, patience)

        w.coordinator.changed = counted
        await asyncio.gather(*(a.beat(wait_ms=500) for _ in range(5)))
        assert asked <= 5


async def test_a_loss_that_is_not_a_number_is_reported(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        await a.deliver(1.0, history='{"loss": [0.5, null]}')
        await w.global_of(1)
        (told,) = logged(tmp_path / "state", Reported)
        assert told.history == {"loss": [0.5, None]}


def test_a_rate_is_by_name_and_second() -> None:
    rate = Rate(2)
    assert [rate.exceeded("a", 5.0 + i / 10) for i in range(4)] == [False, False, True, True]
    assert not rate.exceeded("b", 5.4)
    assert not rate.exceeded("a", 6.0)


async def test_turns_are_taken_one_at_a_time_and_leave_nothing_behind() -> None:
    turns, inside = Turns(), 0

    async def one() -> None:
        nonlocal inside
        async with turns.of("a"):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(one() for _ in range(5)))
    assert turns._locks == {}


async def test_sockets_that_say_nothing_are_closed(tmp_path: Path) -> None:
    server = ServerConfig(port=0, state="state", handshake_timeout=2.0)
    config = federation_config(tmp_path, {}, server=server)
    async with running_federation(tmp_path, config) as w, asyncio.timeout(60):
        silent = [await asyncio.open_connection("127.0.0.1", w.server.port) for _ in range(20)]
        for reader, writer in silent:
            while await reader.read(1000):  # its own greeting, and then the end
                pass
            writer.close()
        (a,) = await w.join("a")
        await a.deliver(1.0)
        assert await w.global_of(1) == [1.0]


async def test_a_private_round_that_is_repeated_with_other_updates_draws_fresh_noise(
    tmp_path: Path,
) -> None:
    """The machine loses power while the model is written, and an update with it."""
    save_model(tmp_path / "first", {"weights": np.zeros(1000, np.float32)})
    config = federation_config(
        tmp_path,
        {"rounds": 1, "min_participants": 2},
        aggregation=Private(clip_norm=1.0, noise_multiplier=1.0),
        initial_weights="first",
    )
    store = CoordinatorBucket(Bucket(config.bucket.url), tmp_path / "state", 1 << 20)
    async with running_federation(tmp_path, config) as w:
        people = await w.join("a", "b")
        state = w.state
        steps = [np.zeros(1000, np.float32), np.full(1000, 1e-3, np.float32)]
        noises, epsilons = [], []
        for value in (steps[0], steps[1], steps[1]):
            deliveries = []
            for one in people:
                digest = one.upload(value).hex()
                deliveries.append(Delivery(one.participant_id, 0, digest, 1))
                store.take(deliveries[-1], 1 << 20)
            made = combine(config, store, state, bytes(32), deliveries)
            with ModelFile(store.global_path(1)) as model:
                noises.append(model.arrays()["weights"] - value)
            epsilons.append(made.figures["noisy_rounds"])
    assert np.abs(noises[0] - noises[1]).max() > 0.1
    np.testing.assert_array_equal(noises[1], noises[2])
    assert epsilons == [1.0, 2.0, 2.0]
