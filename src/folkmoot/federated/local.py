"""A whole federation in this process: for notebooks, scripts and tests of an idea."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from folkmoot.federated.coordinator.config import BESIDE_JOURNAL, Federation, rooted
from folkmoot.federated.coordinator.server import serving
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.participant import Participant, as_given
from folkmoot.federated.participant.policy import ALL, Policy


async def train_federation(
    config: Federation, participants: Iterable[Participant], folder: str | Path = "."
) -> Any:
    """Coordinate `config` for these participants until its last round; the weights they made.

    Relative paths in `config` are taken from `folder`. The weights are as `train_round` gets them.
    """
    async with serving(rooted(config, Path(folder), BESIDE_JOURNAL)) as server:
        # Whoever starts it all is the owner of all.
        policy = Policy(buckets=(ALL,), coordinator=server.coordinator.identity.public.hex())
        settings = Settings(address=server.address, run_id=config.run_id, policy=policy)
        await asyncio.gather(*(take_part(one, settings) for one in participants))
        coordinator = server.coordinator
        path = await asyncio.to_thread(coordinator.store.global_path, coordinator.state.round)
        with ModelFile(path) as model:
            return as_given(model.arrays())
