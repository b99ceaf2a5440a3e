"""What a run promises, each by its name: real server, real peers, a tiny model."""

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from folkmoot.client import events
from folkmoot.client.learner import Cancelled, Learner, Worked
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.state import STORED_ROUNDS
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints.manifest import NotWanted
from support.servers import S3Server
from support.small_run import PATIENCE, QUICK, RunMember, SmallRun, StartRun, agreement
from support.small_run import small_run as served_run


class Idle(Learner):
    """Is always busy with something else."""

    def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
        raise Cancelled


def never_loads(who: RunMember) -> None:
    async def load(action: Any) -> bytes:
        await asyncio.Event().wait()
        return b""

    who.member.models.load = load


async def test_a_run_ends_with_one_model_and_a_checkpoint(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with small_run(tmp_path, checkpoint=str(tmp_path / "kept")) as run:
        members = await run.join(3)
        await run.until(run.finished)
        assert run.state.progress.step == 6
        assert max(agreement(members).items())[1] == run.state.model_hash.hex()
        assert [e.owed for e in run.all(m.RoundJudged)] == [0] * 6
        assert not any(member.all(events.MessageRefused) for member in members)
        stored = Learner(run.run)
        stored.restore(tmp_path / "kept" / "step-00000006")
        assert stored.hash() == run.state.model_hash


@pytest.mark.parametrize("kind", ["folder", "s3"])
async def test_a_run_removes_old_checkpoints_but_not_the_one_it_would_go_back_to(
    tmp_path: Path,
    small_run: StartRun,
    kind: str,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = str(tmp_path / "kept")
    if kind == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        place = server.new_bucket()
    changes = {"total_steps": 8, "rounds_per_epoch": 2, "keep_checkpoints": 1}
    async with small_run(tmp_path, checkpoint=place, **changes) as run:
        members = await run.join(3)

        def removed() -> set[str]:
            said = (e for member in members for e in member.all(events.CheckpointsRemoved))
            return {name for event in said for name in event.names}

        await run.until(lambda: "step-00000002" in removed())
        await run.until(run.finished)
        left = {entry.key.split("/")[0] for entry in Bucket(place).list()}
        assert "step-00000002" not in left
        assert {"step-00000006", "step-00000008"} <= left
        assert run.state.checkpoint.location == f"{place}/step-00000008"


async def test_a_quorum_of_opportunistic_witnesses_ends_a_round_early(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with small_run(tmp_path, total_steps=3, max_round_train_time=PATIENCE) as run:
        await run.join(3)
        await run.until(run.finished)
        assert len(run.lasted(Phase.RoundTrain)) >= 3
        assert max(run.lasted(Phase.RoundTrain)) < PATIENCE / 2


@asynccontextmanager
async def two_and_one(
    small_run: StartRun, folder: Path, learner: type[Learner]
) -> AsyncIterator[tuple[SmallRun, list[RunMember], RunMember]]:
    """A finished run of two honest clients and one that learns in another way."""
    config = {"total_steps": 4, "rounds_per_epoch": 8, "init_min_clients": 3}
    # On a busy machine the honest ones need seconds too.
    async with small_run(folder, max_round_train_time=5, **config) as run:
        honest = await run.join(2)
        (other,) = await run.join(learner=learner)
        await run.until(run.finished)
        yield run, honest, other


async def test_a_round_ends_after_its_time_when_results_are_missing(
    tmp_path: Path, small_run: StartRun
) -> None:
    config = {"total_steps": 2, "init_min_clients": 3, "max_round_train_time": 1.5}
    async with small_run(tmp_path, **config) as run:
        await run.join(2)
        await run.join(learner=Idle)
        await run.until(lambda: any(e.owed for e in run.all(m.RoundJudged)))
        assert max(run.lasted(Phase.RoundTrain)) >= 1.5
        await run.until(run.finished)


async def test_an_unhealthy_client_is_removed_and_its_work_done_by_others(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with two_and_one(small_run, tmp_path, Idle) as (run, honest, idle):
        assert (idle.id, "Unhealthy") in run.removed()
        assert {who for who, _ in run.removed()} == {idle.id}
        again = [e for e in run.all(m.RoundJudged) if e.owed]
        assert again
        assert run.state.progress.step == 4
        agreement(honest)


async def test_dropping_below_min_clients_in_warmup_waits_for_members(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with small_run(tmp_path, total_steps=2) as run:
        (first,) = await run.join(prepare=never_loads)
        (second,) = await run.join()
        await run.until(lambda: second.all(events.ModelLoaded))
        await run.until(run.in_phase(Phase.Warmup))  # in a store, others may see it before us
        await first.leave()
        await run.until(run.in_phase(Phase.WaitingForMembers, epoch=1))
        assert run.removed() == [(first.id, "Withdrew")]
        assert [e.trained for e in run.all(m.EpochEnded)] == [False]
        await run.join()
        await run.until(run.finished)


async def test_dropping_below_min_clients_in_training_hands_the_model_on(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with small_run(
        tmp_path, total_steps=8, rounds_per_epoch=8, max_round_train_time=3
    ) as run:
        stays, goes = await run.join(2)
        await run.until(run.in_round(2))
        await goes.leave()
        await run.until(run.in_phase(Phase.WaitingForMembers, epoch=1))
        assert not run.all(m.Rewound)
        assert 0 < run.state.progress.step < 8
        (late,) = await run.join()
        await run.until(run.finished)
        assert late.sources() == ["peers"]
        assert stays.sources() == ["seed", "own"]
        agreement([stays, goes, late])


def first_to_store() -> tuple[type[Learner], threading.Event]:
    """Of two that store, the first finishes once the second is at it; the second never does.

    Also gives what is set when the second is told to stop.
    """
    places = itertools.count()
    second_began, cancelled = threading.Event(), threading.Event()

    class FirstToStore(Learner):
        def save(self, store: Any, step: int, stopped: Callable[[], bool]) -> str:
            if next(places) == 0:
                assert second_began.wait(PATIENCE)
                return super().save(store, step, stopped)
            second_began.set()
            while not stopped():
                threading.Event().wait(0.01)
            cancelled.set()
            raise NotWanted

    return FirstToStore, cancelled


async def test_the_first_verified_checkpoint_ends_cooldown_and_cancels_the_others(
    tmp_path: Path, small_run: StartRun
) -> None:
    kept = str(tmp_path / "kept")
    async with small_run(
        tmp_path, total_steps=1, min_clients=6, global_batch_size_start=6, checkpoint=kept
    ) as run:
        learner, cancelled = first_to_store()
        members = await run.join(6, learner=learner)
        await run.until(run.finished)
        assert [e.checkpointers for e in run.all(m.CheckpointWanted)] == [2]
        assert len(run.all(m.CheckpointStored)) == 1
        assert sum(len(member.all(events.CheckpointStored)) for member in members) == 1
        assert await asyncio.to_thread(cancelled.wait, PATIENCE)
        assert run.lasted(Phase.Cooldown)[0] < PATIENCE / 2


async def test_new_joiners_get_the_model_from_their_peers(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with small_run(tmp_path, newcomers_percent=0) as run:
        early = await run.join(2)
        await run.until(run.in_round(0))
        late = await run.join(2)
        await run.until(run.finished)
        assert [member.sources() for member in late] == [["peers"], ["peers"]]
        assert [member.sources() for member in early] == [["seed", "own"], ["seed", "own"]]
        agreement([*early, *late])


async def test_clients_come_back_for_the_next_epoch_by_themselves(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with small_run(tmp_path) as run:
        members = await run.join(3)
        await run.until(run.finished)
        assert len(run.all(m.ClientJoined)) == 3
        started = run.all(m.EpochStarted)
        assert started[-1].clients == 3
        assert len(started) >= 2
        assert agreement(members)


class SpoiledStore(Learner):
    """A disk that keeps something else than what was written."""

    def save(self, store: Any, step: int, stopped: Callable[[], bool]) -> str:
        name = super().save(store, step, stopped)
        file = store.folder / name / "model.safetensors"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        return name


@pytest.mark.parametrize("fault", ["no folder", "spoiled", "no credentials"])
async def test_a_failed_upload_never_counts_as_success(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch, small_run: StartRun
) -> None:
    place = {
        "no folder": str(tmp_path / "corpus.txt" / "kept"),
        "spoiled": str(tmp_path / "kept"),
        "no credentials": "s3://kept/models",
    }[fault]
    # Nobody answers there, neither for credentials nor for the bucket.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:9")
    async with small_run(tmp_path, checkpoint=place, total_steps=2, cooldown_time=2.0) as run:
        members = await run.join(2, learner=SpoiledStore if fault == "spoiled" else Learner)
        await run.until(run.finished)
        failed = [event for member in members for event in member.all(events.CheckpointFailed)]
        assert fault == "no credentials" or failed
        assert not run.all(m.CheckpointStored)
        assert run.state.checkpoint.location == ""
        assert run.lasted(Phase.Cooldown)[0] >= 2.0
        agreement(members)


async def test_a_full_disk_at_checkpoint_costs_the_checkpoint_only(
    tmp_path: Path, small_disk: Path, small_run: StartRun
) -> None:
    (small_disk / "filler").write_bytes(bytes(8 * 1024 * 1024 - 16 * 1024))
    place = str(small_disk / "kept")
    async with small_run(tmp_path, checkpoint=place, total_steps=4, cooldown_time=3.0) as run:
        members = await run.join(2)
        await run.until(run.finished)
        failed = [event for member in members for event in member.all(events.CheckpointFailed)]
        assert failed
        assert "space" in failed[0].reason
        assert not run.all(m.CheckpointStored)
        assert [member.sources() for member in members] == [["seed", "own"]] * 2
        assert agreement(members)


async def test_an_epoch_may_have_more_rounds_than_peers_keep_messages_of(
    tmp_path: Path, small_run: StartRun
) -> None:
    """Two witnesses are all there are: RoundWitness is over as it begins, and nobody sees it."""
    few = replace(QUICK, gossip=replace(QUICK.gossip, quota_messages=12))
    long = {"total_steps": 40, "rounds_per_epoch": 40}
    async with small_run(tmp_path, few, **long) as run:
        members = await run.join(2)
        await run.until(run.finished)
        assert not [e for member in members for e in member.all(events.Peers)]
        assert not any(e.owed for e in run.all(m.RoundJudged))
        assert agreement(members)


async def test_of_a_long_epoch_a_member_keeps_the_last_rounds_only(tmp_path: Path) -> None:
    """And no task that has ended: else it would grow for as long as the run goes on."""
    long = {"total_steps": 10**4, "rounds_per_epoch": 10**4}
    async with served_run(tmp_path, **long) as run:
        members = await run.join(2)
        await run.until(run.in_round(5 * STORED_ROUNDS))
        for who in members:
            results, peer = who.member.results, who.peer
            kept = {
                "payloads": results._held,
                "gossip": peer._gossip._rounds,
                "content": {held.round for held in peer.store._held.values()},
                "ledgers": who.member.client.ledgers,
            }
            # Two more: a new round may be here before those that it makes old are forgotten.
            most = STORED_ROUNDS + 2
            assert {what for what, rounds in kept.items() if len(rounds) > most} == set()
            assert len(who.member._tasks) < 20


class Diverges(Learner):
    """Has a batch on which the loss is not a number."""

    def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
        if step == 1:
            raise FloatingPointError("the loss of this batch is nan")
        return super().train(step, share, stopped)


async def test_a_share_that_cannot_be_trained_is_given_to_others(
    tmp_path: Path, small_run: StartRun
) -> None:
    async with two_and_one(small_run, tmp_path, Diverges) as (run, members, unlucky):
        assert unlucky.all(events.ShareFailed)[0].reason.endswith("nan")
        assert any(e.owed for e in run.all(m.RoundJudged))
        assert agreement([*members, unlucky])


async def test_states_are_told_no_faster_than_a_client_takes_them(tmp_path: Path) -> None:
    told, busy = 0, asyncio.Event()

    def prepare(who: RunMember) -> None:
        watch = who.authority.watch

        async def endless() -> AsyncIterator[Coordinator]:
            nonlocal told
            async for state in watch():
                while True:
                    told += 1
                    yield state
                    await asyncio.sleep(0)

        async def never(members: Mapping[bytes, bytes]) -> None:
            busy.set()
            await asyncio.Event().wait()

        who.authority.watch, who.peer.members = endless, never

    async with served_run(tmp_path) as run:
        await run.join(prepare=prepare)
        await busy.wait()
        for _ in range(1000):
            await asyncio.sleep(0)
        assert told == 1
