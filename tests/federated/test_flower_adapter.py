"""A `NumPyClient` as Flower's users write it takes part as it is."""

from pathlib import Path

import numpy as np

from folkmoot.core.federation import messages as m
from folkmoot.federated.flower import FlowerParticipant
from folkmoot.federated.local import train_federation
from support.federation import federation_config, logged


class PlusOne:
    """Its methods have the names, arguments and results of `flwr.client.NumPyClient`."""

    def __init__(self) -> None:
        self.asked: list[dict] = []

    def get_parameters(self, config: dict) -> list[np.ndarray]:
        return [np.zeros((2, 3), np.float32), np.ones(4, np.float64), np.zeros(12, np.float32)]

    def fit(self, parameters: list[np.ndarray], config: dict) -> tuple:
        self.asked.append(config)
        for array in parameters:
            array += 1  # Flower's own arrays may be written to
        return parameters, 10, {"train_loss": 0.25}

    def evaluate(self, parameters: list[np.ndarray], config: dict) -> tuple:
        return float(parameters[0][0, 0]), 5, {"accuracy": 0.5}


async def test_a_numpy_client_takes_part_as_it_is(tmp_path: Path) -> None:
    client = PlusOne()
    rules = {"rounds": 3, "epochs": 2}
    config = federation_config(tmp_path, rules, settings={"lr": 0.1})
    weights = await train_federation(config, [FlowerParticipant(client)], tmp_path)
    assert [weights[name].flat[0] for name in sorted(weights)] == [2.0, 3.0, 2.0]
    assert [weights[name].shape for name in sorted(weights)] == [(2, 3), (4,), (12,)]
    assert client.asked[1] == {"epochs": 2, "epoch_base": 2, "lr": 0.1}
    assert [found.loss for found in logged(tmp_path / "state", m.Evaluated)] == [0.0, 1.0]
