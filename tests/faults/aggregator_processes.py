"""An aggregator as a process that kills itself where a test says."""

import asyncio

from faults.federation_processes import Doomed, Mortal
from folkmoot.federated.aggregator.aggregate import aggregate
from folkmoot.federated.aggregator.config import Aggregator


def stand_between(config: Aggregator, death: str, method: str, point: str) -> None:
    """Run an aggregator until the federation above has finished, or die as told."""
    mortal = type("MortalHere", (Mortal,), {"death": death})
    doomed = type("DoomedHere", (Doomed,), {"method": method, "point": point})
    asyncio.run(aggregate(config, connect=doomed, journal=mortal))
