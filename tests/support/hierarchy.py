"""A coordinator, aggregators and participants in one process, and the same federation without."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors.numpy import save_file

from folkmoot.core.federation import Rules
from folkmoot.federated.aggregator.aggregate import aggregate
from folkmoot.federated.aggregator.config import (
    AboveConfig,
    Aggregator,
    RegionConfig,
    RegionRules,
    region_at,
)
from folkmoot.federated.coordinator.config import (
    Federation,
    SecurityConfig,
    ServerConfig,
    rooted,
)
from folkmoot.federated.coordinator.server import RunningServer, serving
from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.participant.policy import Policy
from support.federation import SEED, Watched, identity

RUN = "mine"
SIZE = 1000


class Learner(Participant):
    """Its result depends on the weights, its own numbers, and nothing else."""

    def __init__(self, number: int, size: int = SIZE, **changed: Any) -> None:
        self.own = np.random.default_rng(number).standard_normal(size).astype(np.float32)
        self.samples = changed.get("samples", 3 + 7 * number)
        self.asked: list[tuple[int, int, dict[str, Any]]] = []

    def init_weights(self) -> Array:
        raise AssertionError("nobody is asked for first weights")

    def train_round(self, weights: Any, epochs: int, epoch_base: int, config: Any) -> tuple:
        self.asked.append((epochs, epoch_base, config))
        new = np.tanh(weights["w"] * np.float32(1.1) + self.own)
        return {"w": new, "seen": weights["seen"] + self.samples}, self.samples, {}

    def evaluate(self, weights: Any) -> tuple[float, int, dict[str, float]]:
        loss = float(np.square(weights["w"] - self.own).mean())
        return loss, self.samples, {"first": float(weights["w"][0])}


def upper_config(folder: Path, aggregators: dict[str, int], **changed: Any) -> Federation:
    """The federation above; each name has the key of `identity(name)`."""
    folder.mkdir(parents=True, exist_ok=True)
    first = np.random.default_rng(99).standard_normal(SIZE).astype(np.float32)
    save_file({"w": first, "seen": np.zeros(2, np.int64)}, folder / "first.safetensors")
    rules = {"rounds": 4, "epochs": 3, "min_participants": len(aggregators) or 4}
    names = {**changed.pop("names", {}), **{name: name for name in aggregators}}
    keys = {name: identity(key).public.hex() for name, key in names.items()}
    security = SecurityConfig(participants=keys, aggregators=aggregators)
    config = Federation(
        run_id=RUN,
        seed=SEED,
        initial_weights="first.safetensors",
        rounds=Rules(**{**rules, **changed.pop("rules", {})}),
        server=ServerConfig(port=0, state="state"),
        **{"security": security, **changed},
    )
    return rooted(config, folder)


def region_config(folder: Path, name: str, above: RunningServer, **changed: Any) -> Aggregator:
    """The aggregator `name`, with a key that `upper_config` lists."""
    folder.mkdir(parents=True, exist_ok=True)
    key = folder / "aggregator.key"
    if not key.exists():
        key.write_text(name.encode().ljust(32, b"\0").hex() + "\n")
    rules = RegionRules(**{"min_participants": 2, **changed.pop("rules", {})})
    pinned = above.coordinator.identity.public.hex()
    config = RegionConfig(
        run_id=name,
        above=AboveConfig(
            address=above.address, run_id=above.coordinator.config.run_id, coordinator=pinned
        ),
        rounds=rules,
        server=ServerConfig(
            port=changed.pop("port", 0), weights_port=changed.pop("weights_port", 0), state="state"
        ),
        **changed,
    )
    made = region_at(config, folder)
    quick = msgspec.structs.replace(made.above, longest_pause=0.2)
    return Aggregator(made.below, quick, made.properties)


async def join(server: RunningServer, learners: Sequence[Participant], **policy: Any) -> None:
    pinned = server.coordinator.identity.public.hex()
    settings = Settings(
        address=server.address,
        run_id=server.coordinator.config.run_id,
        policy=Policy(coordinator=pinned, **policy),
        longest_pause=0.2,
    )
    await asyncio.gather(*(take_part(one, settings) for one in learners))


async def run_region(config: Aggregator, learners: Sequence[Participant], **policy: Any) -> None:
    """An aggregator and those below it, until all is over."""
    async with asyncio.TaskGroup() as tasks:

        def told(server: RunningServer) -> None:
            tasks.create_task(join(server, learners, **policy))

        await aggregate(config, told)


def watching(config: Federation) -> AbstractAsyncContextManager[RunningServer]:
    return serving(config, Watched)


def model(server: RunningServer, round_: int) -> dict[str, Array]:
    with ModelFile(server.coordinator.store.global_path(round_)) as file:
        return {name: array.copy() for name, array in file.arrays().items()}


async def flat(folder: Path, learners: Sequence[Participant], **changed: Any) -> dict[str, Array]:
    """The last model of the same federation without aggregators."""
    rules = {"min_participants": len(learners), **changed.pop("rules", {})}
    config = upper_config(folder, {}, rules=rules, **changed)
    async with serving(config) as server:
        await join(server, learners)
        return model(server, server.coordinator.state.round)


async def tree(
    folder: Path,
    regions: dict[str, Sequence[Participant]],
    region: Callable[[str], dict[str, Any]] = lambda name: {},
    policy: dict[str, Any] | None = None,
    **changed: Any,
) -> tuple[dict[str, Array], Any]:
    """The last model of a federation of regions, and its coordinator's state."""
    config = upper_config(folder, dict.fromkeys(regions, 10), **changed)
    async with serving(config) as server, asyncio.TaskGroup() as tasks:
        for name, learners in regions.items():
            own = {"rules": {"min_participants": len(learners)}, **region(name)}
            aggregator = region_config(folder / name, name, server, **own)
            tasks.create_task(run_region(aggregator, learners, **(policy or {})))
        await server.finished()
        state = server.coordinator.state
        made = model(server, state.round)
    return made, state
