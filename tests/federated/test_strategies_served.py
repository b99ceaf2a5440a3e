"""Every strategy from a TOML file to a finished federation, over real gRPC."""

import asyncio

import numpy as np
import pytest

from folkmoot.federated.coordinator.config import load_federation
from folkmoot.federated.coordinator.events import Aggregated
from folkmoot.federated.coordinator.server import serving
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.participant import Participant
from support.federation import AGREES, logged

TOML = """
run_id = "all"
[rounds]
rounds = 4
min_participants = 3
{rounds}
[server]
port = 0
[aggregation]
{aggregation}
"""


class Pulls(Participant):
    """Half of the way to 1, from wherever the global model is."""

    def init_weights(self):
        return {"w": np.zeros(5, np.float32), "seen": np.array([0])}

    def train_round(self, weights, epochs, epoch_base):
        new = {"w": (weights["w"] + 1) / 2, "seen": weights["seen"] + 1}
        return {"w": new["w"].astype(np.float32), "seen": new["seen"]}, 3, {}


async def federate(folder, aggregation, rounds=""):
    path = folder / "federation.toml"
    path.write_text(TOML.format(aggregation=aggregation, rounds=rounds))
    async with serving(load_federation(path)) as server:
        settings = Settings(address=server.address, run_id="all", policy=AGREES)
        await asyncio.gather(*(take_part(Pulls(), settings) for _ in range(3)))
    with ModelFile(folder / "federation-state/bucket/4/global") as model:
        return {name: array.copy() for name, array in model.arrays().items()}


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ('strategy = "fedavg"', 0.875),
        ('strategy = "median"', 0.875),
        ('strategy = "trimmed_mean"\ntrim = 0.4', 0.875),
        ('strategy = "krum"\nbyzantine = 0\nkeep = 2', 0.875),
        ('strategy = "clipped"\nclip_norm = 100.0', 0.875),
        # m: 1/2, 1/4 + 1/4, 1/4 + 0; x: 1/2, 1, 5/4.
        ('strategy = "fedavgm"\nmomentum = 0.5', 1.25),
    ],
)
async def test_three_rounds_after_the_initial_one_give_the_known_model(
    tmp_path, aggregation, expected
):
    model = await federate(tmp_path, aggregation)
    assert np.allclose(model["w"], expected)
    assert model["seen"] == [3]


@pytest.mark.parametrize("name", ["fedadagrad", "fedadam", "fedyogi"])
async def test_adaptive_optimizers_move_towards_the_target(tmp_path, name):
    model = await federate(tmp_path, f'strategy = "{name}"\nlearning_rate = 0.05')
    assert (model["w"] > 0.02).all()
    assert (model["w"] < 1.5).all()


async def test_buffered_rounds_finish_without_waiting_for_everybody(tmp_path):
    model = await federate(tmp_path, 'strategy = "fedbuff"', "buffer = 3\nmax_staleness = 1")
    assert (model["w"] > 0).all()
    assert (model["w"] <= 1).all()


async def test_the_privacy_spent_is_in_the_event_log(tmp_path):
    await federate(tmp_path, 'strategy = "private"\nclip_norm = 1.0\nnoise_multiplier = 4.0')
    made = logged(tmp_path / "federation-state", Aggregated)
    spent = [one.figures["epsilon"] for one in made]
    assert spent[0] == 0, "the initial round has no data in it"
    assert 0 < spent[1] < spent[2] < spent[3]
