"""What an aggregator may not do, what cannot be summed, and a region that has trouble."""

import asyncio
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import grpc
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.config import ConfigError, decode
from folkmoot.core.federation.weights import capped
from folkmoot.federated import wire
from folkmoot.federated.aggregate import Closing, ModelUpdate
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.linear import sum_layout, weighted_sum
from folkmoot.federated.aggregate.strategy import write_linear
from folkmoot.federated.aggregator.aggregate import aggregate
from folkmoot.federated.aggregator.config import RegionConfig
from folkmoot.federated.aggregator.region import BeganAnew
from folkmoot.federated.coordinator.config import SecurityConfig, decode_federation
from folkmoot.federated.coordinator.updates import weighed
from folkmoot.federated.model_file.memory import MemoryModel
from folkmoot.federated.participant.carried import CarriedWeights
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.policy import NotAgreed
from support.federation import identity, refusal
from support.hierarchy import (
    RUN,
    SIZE,
    Learner,
    flat,
    model,
    region_config,
    run_region,
    upper_config,
    watching,
)

Code = grpc.StatusCode


# The sum.


def update(id: str, weights: np.ndarray, samples: int, reference: MemoryModel) -> ModelUpdate:
    return ModelUpdate(id, samples, MemoryModel({"w": weights}), base=reference)


def summed(id: str, updates: list[ModelUpdate], reference: MemoryModel) -> ModelUpdate:
    layout = sum_layout(reference.layout)
    out = MemoryModel.empty(layout)
    write_linear(layout, weighted_sum(updates), 1.0, out)
    samples = sum(one.samples for one in updates)
    heads = sum(max(1, one.participants) for one in updates)
    return ModelUpdate(id, samples, out, base=reference, participants=heads, summed=samples)


def mean(updates: list[ModelUpdate], reference: MemoryModel) -> np.ndarray:
    out = MemoryModel.empty(reference.layout)
    FedAvg().combine(Closing(reference, updates, None, out, None, bytes(32)))
    return out.arrays["w"]


FLOATS = st.floats(-1e6, 1e6, width=32)


@given(
    st.lists(st.tuples(FLOATS, st.integers(1, 2**29), st.integers(0, 2)), min_size=1, max_size=12)
)
def test_a_tree_is_as_near_to_the_true_mean_as_the_flat_sum(terms: list[tuple]) -> None:
    """The bound of decision 146, against exact fractions: (n − 1) additions, a division, a cast."""
    dtype = np.float64
    reference = MemoryModel({"w": np.zeros(1, dtype)})
    updates = [
        update(f"{n:02}", np.array([value], dtype), samples, reference)
        for n, (value, samples, _) in enumerate(terms)
    ]
    regions = {where for _, _, where in terms}
    below = [
        summed(
            f"r{where}",
            [u for u, t in zip(updates, terms, strict=True) if t[2] == where],
            reference,
        )
        for where in sorted(regions)
    ]
    total = sum(samples for _, samples, _ in terms)
    true = sum(Fraction(value) * samples for value, samples, _ in terms) / total
    size = sum(abs(Fraction(value)) * samples for value, samples, _ in terms) / total
    bound = (len(terms) + 1) * Fraction(2) ** -52 * size
    for found in (mean(updates, reference), mean(below, reference)):
        assert abs(Fraction(float(found[0])) - true) <= bound


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 5)), min_size=1, max_size=9))
def test_regions_are_capped_as_their_participants_would_be(regions: list[tuple[int, int]]) -> None:
    """Of equal participants, a region counts for what they would count for in a flat federation."""
    samples, heads = [n * each for n, each in regions], [each for _, each in regions]
    counts = capped(samples, heads, 10.0)
    alone = capped([n for n, each in regions for _ in range(each)], [1] * sum(heads), 10.0)
    parts = iter(alone)
    assert counts == [sum(next(parts) for _ in range(each)) for each in heads]


def test_a_sum_that_claims_too_much_counts_for_less_and_means_the_same() -> None:
    reference = MemoryModel({"w": np.zeros(2, np.float32)})
    honest = [update(n, np.array([1, 2], np.float32), 10, reference) for n in "ab"]
    greedy = summed("z", [update("x", np.array([5, 5], np.float32), 10**6, reference)], reference)
    counted = weighed([*honest, greedy], 10.0)
    assert [one.samples for one in counted] == [10, 10, 100]
    assert mean(counted, reference) == pytest.approx([(20 + 500) / 120, (40 + 500) / 120])


# What a file may say.


ABOVE = 'run_id = "x"\n[rounds]\nrounds = 1\n'
LISTED = f'[security.participants]\nnorth = "{"ab" * 32}"\n[security.aggregators]\nnorth = 5\n'


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('[aggregation]\nstrategy = "median"\n', "only the sum"),
        ('[aggregation]\nstrategy = "trimmed_mean"\n', "only the sum"),
        ('[aggregation]\nstrategy = "krum"\nbyzantine = 1\n', "only the sum"),
        ('[aggregation]\nstrategy = "clipped"\nclip_norm = 1.0\n', "only the sum"),
        ('[aggregation]\nstrategy = "fedbuff"\n', "only the sum"),
        (
            '[aggregation]\nstrategy = "private"\nclip_norm = 1.0\nnoise_multiplier = 1.0\n',
            "cannot be private",
        ),
        ("[secure]\nenabled = true\n", "must be off"),
        ("", "regions make no first weights"),
    ],
)
def test_what_needs_more_than_a_sum_is_refused(said: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        decode_federation(ABOVE + LISTED + said, "federation.toml")


def test_an_aggregator_is_on_the_allow_list() -> None:
    said = 'initial_weights = "w"\n' + ABOVE + "[security.aggregators]\nnorth = 5\n"
    with pytest.raises(ConfigError, match=r"give its key in \[security.participants\]"):
        decode_federation(said, "federation.toml")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("rounds = 5", r"rounds\.rounds: is decided by the coordinator above"),
        ("stop_after = 5", "stop_after: is decided by the coordinator above"),
        ("[aggregation]\nstrategy = 'fedavg'", "aggregation"),
        ("[evaluation]\nevery = 1", "evaluation"),
    ],
)
def test_a_region_decides_nothing_that_is_decided_above(said: str, reason: str) -> None:
    text = f'run_id = "n"\n[above]\naddress = "a:1"\nrun_id = "x"\n[rounds]\n{said}\n'
    with pytest.raises(ConfigError, match=reason):
        decode(text, RegionConfig, "region.toml")


# What a coordinator takes.


class ByHand(Connection):
    """An aggregator, or one that says so, moved by hand."""

    async def deliver(self, arrays: dict[str, np.ndarray], samples: int, heads: int) -> Any:
        carried = CarriedWeights(self)
        try:
            digest = await asyncio.to_thread(carried.write_update, 0, self.participant_id, arrays)
        finally:
            carried.close()
        request = wire.EndTrainingRoundRequest(
            participant_id=self.participant_id,
            number_samples=samples,
            digest=digest,
            participants=heads,
        )
        return await self.call("EndTrainingRound", request)


def sums(value: float = 1.0, dtype: Any = np.float64) -> dict[str, np.ndarray]:
    return {"w": np.full(SIZE, value, dtype), "seen": np.zeros(2, dtype)}


async def test_a_coordinator_checks_what_claims_to_be_a_sum(tmp_path: Path) -> None:
    keys = {name: identity(name).public.hex() for name in ("north", "lone")}
    security = SecurityConfig(participants=keys, aggregators={"north": 3})
    rules = {"min_participants": 2, "max_strikes": 0}
    config = upper_config(tmp_path, {}, security=security, rules=rules)
    async with watching(config) as server:
        north, lone = (ByHand(server.address, RUN, identity(name)) for name in ("north", "lone"))
        for one in (north, lone):
            await one.register()
        cases = [
            (lone, sums(), 10, 2, "no aggregator here"),
            (north, sums(), 10, 4, "for 3 at the most"),
            (north, sums(), 10, 0, "this is no sum"),
            (north, sums(), 2, 3, "each has one at the least"),
            (north, sums(dtype=np.float32), 10, 3, "dtype"),
            (north, sums(np.nan), 10, 3, "finite"),
        ]
        for who, arrays, samples, heads, reason in cases:
            code, said = await refusal(who.deliver(arrays, samples, heads))
            assert reason in said, (code, said)
        assert server.coordinator.state.deliveries == {}
        for one in (north, lone):
            await one.close()


async def test_a_sum_that_makes_no_model_is_taken_out(tmp_path: Path) -> None:
    """1e300 for a float32 model: finite, and nothing that the others could be combined with."""
    config = upper_config(tmp_path, {"north": 3, "south": 3}, rules={"quorum": 0.5})
    async with watching(config) as server:
        lines = [ByHand(server.address, RUN, identity(name)) for name in ("north", "south")]
        for one in lines:
            await one.register()
        await lines[0].deliver(sums(20.0), 10, 2)
        await lines[1].deliver(sums(1e300), 10, 2)
        await server.coordinator.until(lambda s: s.round == 1)
        assert (model(server, 1)["w"] == 2.0).all()
        for one in lines:
            await one.close()


# What an aggregator and its participants do not do.


async def test_an_aggregator_makes_no_first_weights(tmp_path: Path) -> None:
    config = upper_config(tmp_path, {"north": 2, "south": 2})
    config = msgspec.structs.replace(config, initial_weights="")
    async with watching(config) as server:
        both = [
            run_region(region_config(tmp_path / n, n, server), [Learner(0), Learner(1)])
            for n in ("north", "south")
        ]
        for found in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(found, ExceptionGroup)
            assert found.subgroup(NotAgreed), found


@pytest.mark.parametrize(
    ("policy", "reason"), [({"masking": True}, "masking"), ({"least_noise": 1.0}, "least_noise")]
)
async def test_a_participant_asks_its_aggregator_for_what_it_asks_a_coordinator(
    tmp_path: Path, policy: dict[str, Any], reason: str
) -> None:
    config = upper_config(tmp_path, {"north": 2})
    async with watching(config) as server:
        region = region_config(tmp_path / "north", "north", server)
        with pytest.raises(ExceptionGroup) as found:
            await run_region(region, [Learner(0), Learner(1)], **policy)
        assert reason in str(found.value.exceptions[0])
        assert server.coordinator.state.deliveries == {}


# Trouble.


class Slow(Learner):
    """Does not come back in its second round until it may."""

    def __init__(self, number: int, may: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(number)
        self._may, self._loop = may, loop

    def train_round(self, weights: Any, epochs: int, epoch_base: int, config: Any) -> tuple:
        if epoch_base == 3:
            asyncio.run_coroutine_threadsafe(self._may.wait(), self._loop).result()
        return super().train_round(weights, epochs, epoch_base, config)


async def test_a_region_that_is_left_out_takes_the_next_round(tmp_path: Path) -> None:
    """Above they go on after their deadline, and the region gives its own round up."""
    may = asyncio.Event()
    people = [Slow(n, may, asyncio.get_running_loop()) for n in range(2)]
    rules = {"quorum": 0.5, "round_deadline": 10.0}
    config = upper_config(tmp_path, {"north": 2, "south": 2}, rules=rules)
    async with watching(config) as server, asyncio.TaskGroup() as tasks:
        for name, those in (("north", people), ("south", [Learner(2), Learner(3)])):
            region = region_config(tmp_path / name, name, server)
            tasks.create_task(run_region(region, those))
        await server.coordinator.until(lambda s: s.round == 2)
        may.set()
        await server.finished()
        combined = sorted(
            effect.keys
            for effect in server.coordinator.seen
            if type(effect).__name__ == "Aggregate"
        )
    assert combined[1] == ("1/south",)
    assert combined[0] == ("0/north", "0/south")
    assert combined[-1] == ("3/north", "3/south")


async def test_a_region_with_nobody_is_not_counted_on(tmp_path: Path) -> None:
    """It registers above when it has participants; a round begins without it."""
    rules = {"min_participants": 1, "spares": 1}
    config = upper_config(tmp_path, {"north": 2, "south": 2}, rules=rules)
    async with watching(config) as server:
        empty = asyncio.create_task(aggregate(region_config(tmp_path / "south", "south", server)))
        await run_region(
            region_config(tmp_path / "north", "north", server), [Learner(0), Learner(1)]
        )
        made = model(server, 4)
        assert server.coordinator.state.members == ("north",)
        empty.cancel()
        await asyncio.gather(empty, return_exceptions=True)
    alone = await flat(tmp_path / "flat", [Learner(0), Learner(1)])
    assert (made["w"] == alone["w"]).all()


async def test_a_coordinator_that_began_anew_is_not_followed(tmp_path: Path) -> None:
    """The same key and run, and round 0 once more: the region would train what it has trained."""
    config = upper_config(tmp_path / "top", {"north": 2}, rules={"rounds": 1000})
    async with watching(config) as server:
        region = region_config(tmp_path / "north", "north", server)
        running = asyncio.create_task(run_region(region, [Learner(0), Learner(1)]))
        await server.coordinator.until(lambda s: s.round == 3)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    state = tmp_path / "again/state"
    state.mkdir(parents=True)
    shutil.copy(tmp_path / "top/state/coordinator.key", state)
    async with watching(upper_config(tmp_path / "again", {"north": 2})) as server:
        with pytest.raises(BeganAnew, match=r"another \[server\] state"):
            await aggregate(region_config(tmp_path / "north", "north", server))
