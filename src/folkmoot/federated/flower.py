"""Flower's `NumPyClient` as a participant, as it is: `FlowerParticipant(MyClient())`.

Nothing here imports Flower. What Flower calls `parameters`, a list of arrays, travels as arrays
named by their place in it. The `config` that `fit` and `evaluate` get has the round's settings, and
`epochs` and `epoch_base`.
"""

from collections.abc import Mapping
from typing import Any

from folkmoot.federated.model_file.layout import Array
from folkmoot.federated.participant.participant import Participant


class FlowerParticipant(Participant):
    """Runs a `NumPyClient`."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self._figures: Mapping[str, Any] = {}

    def init_weights(self) -> dict[str, Array]:
        return _named(self.client.get_parameters({}))

    def train_round(
        self,
        weights: Any,
        epochs: int,
        epoch_base: int,
        config: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Array], int, dict[str, list[float]]]:
        asked = {"epochs": epochs, "epoch_base": epoch_base, **(config or {})}
        parameters, samples, self._figures = self.client.fit(_listed(weights), asked)
        return _named(parameters), int(samples), {}

    def evaluate(
        self, weights: Any, config: Mapping[str, Any] | None = None
    ) -> tuple[float, int, Mapping[str, Any]]:
        loss, samples, figures = self.client.evaluate(_listed(weights), dict(config or {}))
        return float(loss), int(samples), figures

    def metrics(self) -> Mapping[str, Any]:
        return self._figures


def _named(parameters: list[Array]) -> dict[str, Array]:
    return {f"{number:05d}": array for number, array in enumerate(parameters)}


def _listed(weights: Mapping[str, Array]) -> list[Array]:
    # A client of Flower's may write into what it gets; ours are the coordinator's own bytes.
    return [weights[name].copy() for name in sorted(weights)]
