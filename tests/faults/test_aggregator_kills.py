"""kill -9 of an aggregator at every step of its journal, and at every message to the one above.

Each time the federation goes on, and ends with the bits of the flat one that nobody disturbed.
"""

import asyncio
import signal
from pathlib import Path

import pytest

from faults.aggregator_processes import stand_between
from faults.federation_processes import any_port, start
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

ROUNDS = 4
METHODS = ("Rendezvous", "Heartbeat", "StartTrainingRound", "EndTrainingRound")


@pytest.mark.parametrize("where", ["journal", "messages"])
async def test_an_aggregator_may_be_killed_anywhere(tmp_path: Path, where: str) -> None:
    lives = [(death, "", "") for death in ("beginning", "before", "torn", "after")] * 40
    if where == "messages":
        lives = [("", m, p) for _ in range(ROUNDS) for m in METHODS for p in ("before", "after")]
    port, deaths = any_port(), 0
    config = upper_config(tmp_path, {"north": 2, "south": 2}, rules={"heartbeat_timeout": 300.0})
    async with watching(config) as above:
        patient = {"min_participants": 2, "heartbeat_timeout": 300.0}

        async def kill_it() -> None:
            nonlocal deaths
            for life in [*lives, ("", "", "")]:
                north = region_config(
                    *(tmp_path / "north", "north", above),
                    **{"rules": patient, "port": port, "weights_port": any_port()},
                )
                process = start(stand_between, north, *life)
                await asyncio.to_thread(process.join)
                if process.exitcode == 0:
                    return
                assert process.exitcode == -signal.SIGKILL
                deaths += 1

        async with asyncio.TaskGroup() as tasks:
            south = region_config(tmp_path / "south", "south", above, rules=patient)
            tasks.create_task(run_region(south, [Learner(2), Learner(3)]))
            for number in range(2):
                settings = Settings(address=f"127.0.0.1:{port}", run_id="north", longest_pause=0.2)
                tasks.create_task(take_part(Learner(number), settings))
            tasks.create_task(kill_it())
            await above.finished()
            made = model(above, ROUNDS)
    # Two join; in every round it is called, and two deliver; it hears that it is over.
    assert deaths >= (4 * (2 + 3 * ROUNDS) if where == "journal" else len(METHODS) * 2)
    alone = await flat(tmp_path / "flat", [Learner(n) for n in range(4)])
    assert {name: array.tobytes() for name, array in made.items()} == {
        name: array.tobytes() for name, array in alone.items()
    }


@pytest.mark.faults
async def test_a_masked_region_has_the_same_sum_whenever_its_aggregator_is_killed(
    tmp_path: Path,
) -> None:
    """Also after its members revealed, which they do for no other sum."""
    masked = SecureConfig(enabled=True)
    patient = {"min_participants": 3, "heartbeat_timeout": 300.0}
    rules = {"heartbeat_timeout": 300.0, "rounds": 2}
    port, deaths = any_port(), 0
    config = upper_config(tmp_path, {"north": 3}, rules=rules)
    async with watching(config) as above:

        async def kill_it() -> None:
            nonlocal deaths
            for death in [*["after"] * 30, ""]:
                north = region_config(
                    *(tmp_path / "north", "north", above),
                    **{"rules": patient, "port": port, "weights_port": any_port()},
                    secure=masked,
                )
                process = start(stand_between, north, death, "", "")
                await asyncio.to_thread(process.join)
                if process.exitcode == 0:
                    return
                assert process.exitcode == -signal.SIGKILL
                deaths += 1

        async with asyncio.TaskGroup() as tasks:
            for number in range(3):
                settings = Settings(
                    address=f"127.0.0.1:{port}",
                    run_id="north",
                    longest_pause=0.2,
                    policy=Policy(masking=True),
                )
                tasks.create_task(take_part(Learner(number), settings))
            tasks.create_task(kill_it())
            await above.finished()
            made = model(above, 2)
    assert deaths > 6
    learners = [Learner(n) for n in range(3)]
    alone = await flat(tmp_path / "flat", learners, secure=masked, rules={"rounds": 2})
    assert {name: array.tobytes() for name, array in made.items()} == {
        name: array.tobytes() for name, array in alone.items()
    }
