"""A thousand participants in one federation, on one machine: rounds complete, nobody is lost."""

import asyncio
from pathlib import Path

import numpy as np

from folkmoot.core.federation import messages as m
from folkmoot.federated import Participant, Settings, take_part
from support.federation import AGREES, federation_config, floats, running_federation

PEOPLE = 1000


class Light(Participant):
    def __init__(self, number: int) -> None:
        self.number = number
        self.rounds = 0

    def init_weights(self) -> np.ndarray:
        return np.zeros(8, np.float32)

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        self.rounds += 1
        return weights + np.float32(self.number), 1, {}


async def test_a_thousand_participants_finish_every_round(tmp_path: Path) -> None:
    config = federation_config(tmp_path, {"rounds": 2, "min_participants": PEOPLE})
    async with running_federation(tmp_path, config) as w:
        settings = Settings(
            address=w.server.address, run_id="test", policy=AGREES, longest_pause=1.0
        )
        people = [Light(i) for i in range(PEOPLE)]
        await asyncio.gather(*(take_part(p, settings) for p in people))
        assert w.state.phase == "FINISHED"
        assert {p.rounds for p in people} == {1}
        assert not [e for e in w.coordinator.seen if isinstance(e, m.Left)]
        closed = [len(e.keys) for e in w.coordinator.seen if isinstance(e, m.Aggregate)]
        assert closed == [PEOPLE] * 2
        mean = (PEOPLE - 1) / 2
        np.testing.assert_array_equal(await w.global_of(2), floats([mean] * 8))
