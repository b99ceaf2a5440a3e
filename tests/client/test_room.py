"""What a client keeps for peers is bounded by what its run can produce."""

from pathlib import Path

import pytest

from folkmoot.client.learner import Learner
from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.method_config import (
    DenseConfig,
    DiLoCoConfig,
    DistroConfig,
    MethodConfig,
    SparseLoCoConfig,
)
from folkmoot.exchange.peer import PeerConfig
from support.small_run import StartRun, make_run

CONFIGS = [
    DistroConfig(k=4, chunk=16),
    DistroConfig(k=4, chunk=16, bits=16),
    DenseConfig(),
    DiLoCoConfig(local_steps=2),
    SparseLoCoConfig(local_steps=2),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda r: type(r).__name__)
def test_every_payload_has_the_size_that_its_method_says(
    tmp_path: Path, config: MethodConfig
) -> None:
    learner = Learner(make_run(tmp_path, method=config, delay=0))
    for step in range(2):
        worked = learner.train(step, (Span(step * 4, step * 4 + 4),), lambda: False)
        assert len(worked.payload) == learner.method.payload_size


async def test_the_store_is_as_large_as_the_run_needs(tmp_path: Path, small_run: StartRun) -> None:
    async with small_run(tmp_path, total_steps=2, min_clients=3) as run:
        members = await run.join(3)
        await run.until(run.in_round(1))
        for member in members:
            assert member.peer.store.budget == member.member.learner.room(3)
        await run.until(run.finished)


async def test_the_store_is_never_larger_than_its_owner_allows(
    tmp_path: Path, small_run: StartRun
) -> None:
    small = PeerConfig(store_bytes=100_000)
    async with small_run(tmp_path, peers=small, total_steps=2) as run:
        (member, _) = await run.join(2)
        await run.until(run.finished)
        assert member.peer.store.budget == 100_000 < member.member.learner.room(2)
