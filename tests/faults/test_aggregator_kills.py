"""kill -9 of an aggregator at every step of its journal, and at every message to the one above.

Each time the federation goes on, and ends with the bits of the flat one that nobody disturbed.
"""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest

from faults.aggregator_processes import stand_between
from faults.federation_processes import start
from folkmoot.federated.coordinator.server import RunningServer
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.policy import Policy
from folkmoot.federated.secure.config import SecureConfig
from support.hierarchy import (
    Learner,
    flat,
    model,
    region_config,
    run_region,
    upper_config,
    watching,
)
from support.servers import free_ports

ROUNDS = 4
PATIENT = {"heartbeat_timeout": 300.0}
METHODS = ("Rendezvous", "Heartbeat", "StartTrainingRound", "EndTrainingRound")


class MortalRegion:
    """The region `north`, whose aggregator is started again after every death."""

    def __init__(self, folder: Path, above: RunningServer, members: int, **changed: Any) -> None:
        self.port, self.deaths = free_ports(1)[0], 0
        self._where, self._changed = (folder / "north", "north", above), changed
        self._rules = {"min_participants": members, **PATIENT}

    async def live(self, lives: list[tuple[str, str, str]]) -> None:
        """Through all of them, and then one that nothing ends."""
        for life in [*lives, ("", "", "")]:
            more = {"port": self.port, "weights_port": free_ports(1)[0], **self._changed}
            north = region_config(*self._where, rules=self._rules, **more)
            process = start(stand_between, north, *life)
            await asyncio.to_thread(process.join)
            if process.exitcode == 0:
                return
            assert process.exitcode == -signal.SIGKILL
            self.deaths += 1

    async def join(self, learner: Learner, **policy: bool) -> None:
        address = f"127.0.0.1:{self.port}"
        settings = Settings(
            address=address, run_id="north", longest_pause=0.2, policy=Policy(**policy)
        )
        await take_part(learner, settings)


def bits(model: dict[str, Any]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in model.items()}


@pytest.mark.parametrize("where", ["journal", "messages"])
async def test_an_aggregator_may_be_killed_anywhere(tmp_path: Path, where: str) -> None:
    lives = [(death, "", "") for death in ("beginning", "before", "torn", "after")] * 40
    if where == "messages":
        lives = [("", m, p) for _ in range(ROUNDS) for m in METHODS for p in ("before", "after")]
    config = upper_config(tmp_path, {"north": 2, "south": 2}, rules=PATIENT)
    async with watching(config) as above, asyncio.TaskGroup() as tasks:
        rules = {"min_participants": 2, **PATIENT}
        south = region_config(tmp_path / "south", "south", above, rules=rules)
        tasks.create_task(run_region(south, [Learner(2), Learner(3)]))
        north = MortalRegion(tmp_path, above, 2)
        for number in range(2):
            tasks.create_task(north.join(Learner(number)))
        tasks.create_task(north.live(lives))
        await above.finished()
        made = model(above, ROUNDS)
    # Two join; in every round it is called, and two deliver; it hears that it is over.
    assert north.deaths >= (4 * (2 + 3 * ROUNDS) if where == "journal" else len(METHODS) * 2)
    assert bits(made) == bits(await flat(tmp_path / "flat", [Learner(n) for n in range(4)]))


@pytest.mark.faults
async def test_a_masked_region_has_the_same_sum_whenever_its_aggregator_is_killed(
    tmp_path: Path,
) -> None:
    """Also after its members revealed, which they do for no other sum."""
    masked = SecureConfig(enabled=True)
    config = upper_config(tmp_path, {"north": 3}, rules={"rounds": 2, **PATIENT})
    async with watching(config) as above, asyncio.TaskGroup() as tasks:
        north = MortalRegion(tmp_path, above, 3, secure=masked)
        for number in range(3):
            tasks.create_task(north.join(Learner(number), masking=True))
        tasks.create_task(north.live([("after", "", "")] * 30))
        await above.finished()
        made = model(above, 2)
    assert north.deaths > 6
    learners = [Learner(n) for n in range(3)]
    alone = await flat(tmp_path / "flat", learners, secure=masked, rules={"rounds": 2})
    assert bits(made) == bits(alone)
