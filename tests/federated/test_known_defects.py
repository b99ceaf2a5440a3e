"""Sixteen defects of the original implementation of this design; each must stay impossible here."""

import asyncio
import contextlib
import gc
import os
import pickle
import tracemalloc
from pathlib import Path

import grpc
import msgspec
import numpy as np
import pytest

from folkmoot.core.federation import Phase, Rules
from folkmoot.core.federation import messages as m
from folkmoot.federated import wire
from support.federation import (
    PlusOne,
    code_of,
    federation_config,
    refusal,
    running_federation,
)

Code = grpc.StatusCode


async def test_01_finished_is_terminal(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=1) as w:
        (a,) = await w.join("a")
        await a.deliver(7.0)
        await w.server.finished()
        w.coordinator.submit(m.Dropped((a.participant_id,)))
        late = await w.participant("newcomer").rendezvous()
        assert (late.reply, late.state) == (wire.LATER, wire.STATE["FINISHED"])
        assert await code_of(a.deliver(99.0, 1)) == Code.FAILED_PRECONDITION
        assert w.state.phase is Phase.FINISHED
        assert await w.global_of(1) == [7.0]


async def test_02_starting_outside_a_round_says_failed_precondition(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        (a,) = await w.join("a")
        code, reason = await refusal(a.start())
        assert code == Code.FAILED_PRECONDITION
        assert "STANDBY" in reason


async def test_03_a_missing_object_is_refused_and_may_still_come(tmp_path: Path) -> None:
    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        code, reason = await refusal(a.end(bytes(32)))
        assert code == Code.FAILED_PRECONDITION
        assert f"0/{a.participant_id}" in reason
        await a.deliver(3.0)
        assert await w.global_of(1) == [3.0]


async def test_04_unselected_and_stale_updates_are_refused(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=3, spares=1, fraction_participants=0.5) as w:
        people = await w.join("a", "b", "c")
        (chosen,) = (h for h in people if h.participant_id in w.state.selected)
        other = next(h for h in people if h is not chosen)
        assert await code_of(other.deliver(9.0)) == Code.FAILED_PRECONDITION
        await chosen.deliver(1.0)
        await w.global_of(1)
        for one in people:
            if one is not chosen:
                assert await code_of(one.deliver(9.0, 0)) == Code.FAILED_PRECONDITION


async def test_05_nobody_delivers_under_anothers_name(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2) as w:
        a, b = await w.join("a", "b")
        digest = a.upload(1.0)
        code, reason = await refusal(b.end(digest, participant_id=a.participant_id))
        assert code == Code.PERMISSION_DENIED
        assert f"0/{b.participant_id}" in reason
        assert w.state.deliveries == {}


async def test_06_an_unselected_drop_out_pauses_nobody(tmp_path: Path) -> None:
    rules = {"min_participants": 2, "fraction_participants": 0.6}
    async with running_federation(tmp_path, **rules) as w:
        people = await w.join("a", "b", "c")
        chosen = [h for h in people if h.participant_id in w.state.selected]
        (other,) = (h for h in people if h not in chosen)
        before = w.state.selected
        w.coordinator.submit(m.Dropped((other.participant_id,)))
        assert w.state.selected == before
        assert {await h.beat() for h in chosen} == {("ROUND", 0)}
        for one in chosen:
            await one.deliver(1.0)
        assert await w.global_of(1) == [1.0]


@pytest.mark.parametrize(
    ("least", "fraction", "connected"),
    [(3, 0.1, 30), (1, 0.1, 10), (5, 0.3, 16), (2, 0.6, 3), (7, 0.7, 10), (1, 1.0, 1)],
)
def test_07_fractions_are_exact(least: int, fraction: float, connected: int) -> None:
    rules = Rules(rounds=1, min_participants=least, fraction_participants=fraction)
    assert rules.min_connected == connected
    assert rules.goal(connected) >= least


async def test_08_nan_and_negative_samples_never_reach_the_model(tmp_path: Path) -> None:
    async with running_federation(tmp_path, min_participants=2, spares=1) as w:
        people = await w.join("a", "b", "c")
        chosen = [h for h in people if h.participant_id in w.state.selected]
        assert await code_of(chosen[0].deliver(1.0, samples=-17)) == Code.INVALID_ARGUMENT
        code, reason = await refusal(chosen[0].deliver(np.nan))
        assert code == Code.INVALID_ARGUMENT
        assert "finite" in reason
        for one in people:
            if one.participant_id in w.state.selected:
                await one.deliver(2.0)
        assert await w.global_of(1) == [2.0]


async def test_09_a_wrong_shape_cannot_wedge_a_round(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=3, min_participants=2) as w:
        a, b = await w.join("a", "b")
        await a.deliver(1.0)
        await b.deliver(1.0)
        await w.global_of(1)
        await a.deliver(5.0, 1)
        code, reason = await refusal(b.deliver([1.0, 2.0], 1))
        assert code == Code.INVALID_ARGUMENT
        assert "shape" in reason
        assert await b.beat() == ("ROUND", 1)
        await b.deliver(7.0, 1)
        assert await w.global_of(2) == [6.0]


async def test_10_joining_while_others_expire_is_safe(tmp_path: Path) -> None:
    times = {"heartbeat_time": 0.005, "heartbeat_timeout": 0.005}
    async with running_federation(tmp_path, min_participants=300, **times) as w:
        for batch in range(10):
            await asyncio.gather(*(w.participant(f"{batch}.{i}").rendezvous() for i in range(20)))
        await w.coordinator.until(lambda s: not s.members)
        joined = [e for e in w.coordinator.seen if isinstance(e, m.Joined)]
        left = [e for e in w.coordinator.seen if isinstance(e, m.Left)]
        assert len(joined) == len(left) == 200


async def test_11_and_no_growth_hundreds_of_rounds_in_one_process(tmp_path: Path) -> None:
    config = federation_config(tmp_path, {"rounds": 400})
    async with running_federation(tmp_path, config) as w:
        part = asyncio.create_task(w.take_part(PlusOne()))

        async def used_at(round_: int) -> dict[str, int]:
            await w.coordinator.until(lambda s: s.round >= round_)
            w.coordinator.seen.clear()
            return _in_use(Path(config.server.state))

        early, late = await used_at(150), await used_at(390)
        await part
        allowed = {
            "objects": 1000,
            "descriptors": 10,
            "mappings": 20,
            "files": 10,
            "bytes": 100_000,
        }
        grown = {name: late[name] - early[name] for name in allowed}
        assert all(grown[name] <= allowed[name] for name in allowed), grown


def _in_use(state: Path) -> dict[str, int]:
    gc.collect()
    sizes = []
    # Unlike rglob, walk does not mind a folder that is pruned meanwhile.
    for folder, _, names in os.walk(state):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                sizes.append((name, Path(folder, name).stat().st_size))
    kept = [size for name, size in sizes if not name.endswith(".jsonl")]
    return {
        "objects": len(gc.get_objects()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "mappings": Path("/proc/self/maps").read_text().count("\n"),
        "files": len(kept),
        "bytes": sum(kept),
    }


async def test_12_participants_survive_a_coordinator_that_starts_again(tmp_path: Path) -> None:
    config = federation_config(tmp_path, {"rounds": 6, "min_participants": 2})
    async with running_federation(tmp_path, config) as w:
        parts = [asyncio.create_task(w.take_part(PlusOne())) for _ in range(2)]
        await w.coordinator.until(lambda s: s.round >= 2)
    again = msgspec.structs.replace(config.server, port=w.server.port)
    config = msgspec.structs.replace(config, server=again)
    async with running_federation(tmp_path, config) as w:
        assert w.coordinator.resumed
        await w.server.finished()
        await asyncio.gather(*parts)


async def test_13_a_stuck_participant_holds_a_round_only_until_its_deadline(tmp_path: Path) -> None:
    rules = {"min_participants": 2, "quorum": 0.5, "round_deadline": 0.1}
    async with running_federation(tmp_path, **rules) as w:
        a, stuck = await w.join("a", "stuck")
        beats = asyncio.create_task(stuck.beat_for_ever())
        await stuck.start()
        await a.deliver(1.0)
        assert await w.global_of(1) == [1.0]
        beats.cancel()


async def test_14_a_pickle_is_never_loaded(tmp_path: Path) -> None:
    trap = tmp_path / "trap"

    class Trap:
        def __reduce__(self) -> tuple:
            return os.mkdir, (str(trap),)

    async with running_federation(tmp_path) as w:
        (a,) = await w.join("a")
        body = pickle.dumps(Trap())
        w.bucket.put(f"0/{a.participant_id}", body)
        digest = a.signer.identity.public  # any 32 bytes: the body is refused before it matters
        assert await code_of(a.end(digest)) == Code.DATA_LOSS
        assert not trap.exists()


async def test_15_memory_does_not_grow_with_the_number_of_updates(tmp_path: Path) -> None:
    """20 models of 4 MB are combined within a few blocks of memory."""
    size, count = 1_000_000, 20
    async with running_federation(tmp_path, min_participants=count) as w:
        people = await w.join(*(f"p{i}" for i in range(count)))
        values = np.ones(size, np.float32)
        for one in people[:-1]:
            await one.deliver(values)
        digest = people[-1].upload(values)
        tracemalloc.start()
        await people[-1].end(digest)
        await w.coordinator.until(lambda s: s.round == 1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 3 * 4 * size


async def test_16_a_round_does_not_wait_for_a_heartbeat_period(tmp_path: Path) -> None:
    """With a period of an hour, rounds still follow each other: calls are pushed, not polled."""
    rules = {"rounds": 5, "min_participants": 2, "heartbeat_time": 3600.0}
    async with running_federation(tmp_path, **rules) as w:
        await asyncio.gather(*(w.take_part(PlusOne()) for _ in range(2)))
        assert w.state.phase is Phase.FINISHED
