"""Run an aggregator until the federation above has finished."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from folkmoot.core.federation import messages as m
from folkmoot.federated.aggregator.config import Aggregator
from folkmoot.federated.aggregator.region import Region
from folkmoot.federated.aggregator.relay import Relay
from folkmoot.federated.coordinator.server import RunningServer, serving
from folkmoot.federated.participant.connection import Connection
from folkmoot.federated.participant.participation import stay
from folkmoot.host.journal import Journal
from folkmoot.host.tasks import run_until_one_ends


async def aggregate(
    config: Aggregator,
    told: Callable[[RunningServer], None] = lambda server: None,
    connect: Callable[..., Connection] = Connection,
    journal: Callable[[Path], Journal] = Journal,
) -> None:
    """Be a coordinator below and a participant above; `told` hears where those below can join."""
    region = Region(journal)
    async with serving(config.below, region.coordinate) as server:
        told(server)

        async def take_part_above() -> None:
            # Above nobody should count on a region that has nobody.
            await server.coordinator.staffed.wait()
            await stay(config.above, config.properties, partial(Relay, region), connect)

        await run_until_one_ends(take_part_above(), server.finished())
        server.coordinator.submit(m.Ended())
        await server.farewell()
