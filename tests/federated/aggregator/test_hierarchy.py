"""Aggregators between participants and coordinator: the model is that of the flat federation."""

import asyncio
from pathlib import Path

import pytest

from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from folkmoot.federated.aggregator.aggregate import aggregate
from folkmoot.federated.compression.codec import Compression
from folkmoot.federated.coordinator.config import SecurityConfig
from folkmoot.federated.coordinator.events import EvaluationSummary
from folkmoot.federated.coordinator.server import RunningServer, serving
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.secure.config import SecureConfig
from support.federation import identity, logged
from support.hierarchy import (
    RUN,
    Learner,
    flat,
    join,
    model,
    region_config,
    run_region,
    tree,
    upper_config,
    watching,
)


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(
        one[name].dtype == other[name].dtype and (one[name] == other[name]).all() for name in one
    )


@pytest.mark.parametrize("strategy", [FedAvg, FedAvgM, FedAdagrad, FedAdam, FedYogi])
async def test_regions_make_the_model_of_the_flat_federation(
    tmp_path: Path, strategy: type
) -> None:
    how = {"aggregation": strategy(), "settings": {"rate": 0.5}}
    people = [Learner(n) for n in range(5)]
    made, state = await tree(tmp_path / "tree", {"north": people[:2], "south": people[2:]}, **how)
    alone = [Learner(n) for n in range(5)]
    assert same(made, await flat(tmp_path / "flat", alone, **how))
    assert [one.asked for one in people] == [one.asked for one in alone]
    assert people[0].asked[1] == (3, 3, {"rate": 0.5})
    assert state.history["3/north"].samples == 3 + 10
    assert state.history["3/north"].participants == 2


async def test_masked_regions_make_the_model_of_a_masked_federation(tmp_path: Path) -> None:
    masked = SecureConfig(enabled=True, least_cohort=3)
    people = [Learner(n) for n in range(6)]
    made, _ = await tree(
        tmp_path / "tree",
        {"north": people[:3], "south": people[3:]},
        lambda name: {"secure": masked, "rules": {"min_participants": 3}},
        policy={"masking": True},
    )
    assert same(made, await flat(tmp_path / "flat", [Learner(n) for n in range(6)], secure=masked))


async def test_a_region_may_have_its_updates_in_fewer_bytes(tmp_path: Path) -> None:
    int8 = Compression(method="int8")
    people = [Learner(n) for n in range(4)]
    regions = {"north": people[:2], "south": people[2:]}
    made, _ = await tree(tmp_path / "tree", regions, lambda name: {"compression": int8})
    alone = [Learner(n) for n in range(4)]
    assert same(made, await flat(tmp_path / "flat", alone, compression=int8))


async def test_regions_and_participants_of_no_region_train_together(tmp_path: Path) -> None:
    """The coordinator's own participants send int8; a sum travels as it is."""
    how = {"compression": Compression(method="int8")}
    names = {"north": "north", "lone": "lone"}
    keys = {name: identity(key).public.hex() for name, key in names.items()}
    security = SecurityConfig(participants=keys, aggregators={"north": 2})
    config = upper_config(
        tmp_path / "tree", {}, security=security, rules={"min_participants": 2}, **how
    )
    (tmp_path / "lone.key").write_text(b"lone".ljust(32, b"\0").hex())
    async with watching(config) as server, asyncio.TaskGroup() as tasks:
        region = region_config(tmp_path / "north", "north", server, **how)
        tasks.create_task(run_region(region, [Learner(0), Learner(1)]))
        settings = Settings(address=server.address, run_id=RUN, identity=str(tmp_path / "lone.key"))
        await take_part(Learner(2), settings)
        made = model(server, 4)
    assert same(made, await flat(tmp_path / "flat", [Learner(n) for n in range(3)], **how))


async def test_regions_of_regions(tmp_path: Path) -> None:
    """An aggregator below an aggregator: its sum is one of the terms of a sum."""
    config = upper_config(tmp_path / "top", {"country": 4, "south": 2})
    async with watching(config) as top, asyncio.TaskGroup() as tasks:
        security = SecurityConfig(
            participants={"north": identity("north").public.hex()}, aggregators={"north": 2}
        )
        one = {"min_participants": 1}
        country = region_config(tmp_path / "country", "country", top, security=security, rules=one)

        def told(middle: RunningServer) -> None:
            north = region_config(tmp_path / "north", "north", middle)
            tasks.create_task(run_region(north, [Learner(0), Learner(1)]))

        tasks.create_task(aggregate(country, told))
        south = region_config(tmp_path / "south", "south", top)
        tasks.create_task(run_region(south, [Learner(2), Learner(3)]))
        await top.finished()
        made = model(top, 4)
    assert same(made, await flat(tmp_path / "flat", [Learner(n) for n in range(4)]))


async def test_evaluations_are_passed_on_as_means(tmp_path: Path) -> None:
    people = [Learner(n) for n in range(4)]
    _, state = await tree(tmp_path / "tree", {"north": people[:2], "south": people[2:]})
    config = upper_config(tmp_path / "flat", {})
    async with serving(config) as server:
        await join(server, [Learner(n) for n in range(4)])
        alone = server.coordinator.state
    assert state.best.round == alone.best.round
    assert state.best.loss == pytest.approx(alone.best.loss, rel=1e-14)
    summaries = [
        logged(tmp_path / where / "state", EvaluationSummary) for where in ("tree", "flat")
    ]
    assert [one.samples for one in summaries[0]] == [one.samples for one in summaries[1]]
    assert [one.metrics["first"] for one in summaries[0]] == pytest.approx(
        [one.metrics["first"] for one in summaries[1]]
    )
