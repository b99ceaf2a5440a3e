"""Many participants in one federation, on one machine: rounds complete, nobody is lost.

Two hundred here, a thousand with the fault runs.
"""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from folkmoot.core.federation import messages as m
from folkmoot.federated import Participant
from support.federation import floats, running_federation


class Light(Participant):
    def __init__(self, number: int) -> None:
        self.number = number
        self.rounds = 0

    def init_weights(self) -> np.ndarray:
        return np.zeros(8, np.float32)

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        self.rounds += 1
        return weights + np.float32(self.number), 1, {}


@pytest.mark.parametrize("many", [200, pytest.param(1000, marks=pytest.mark.faults)])
async def test_many_participants_finish_every_round(tmp_path: Path, many: int) -> None:
    # All of them are one process, in which everybody may be kept waiting for a while.
    calm = {"heartbeat_timeout": 200.0, "straggler_time": 0.0}
    async with running_federation(tmp_path, rounds=2, min_participants=many, **calm) as w:
        people = [Light(i) for i in range(many)]
        await asyncio.gather(*(w.take_part(p, longest_pause=1.0) for p in people))
        assert w.state.phase == "FINISHED"
        assert {p.rounds for p in people} == {1}
        assert not [e for e in w.coordinator.seen if isinstance(e, m.Left)]
        closed = [len(e.keys) for e in w.coordinator.seen if isinstance(e, m.Aggregate)]
        assert closed == [many] * 2
        mean = (many - 1) / 2
        np.testing.assert_array_equal(await w.global_of(2), floats([mean] * 8))
