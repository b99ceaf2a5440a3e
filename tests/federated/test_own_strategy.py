"""A strategy of the owner's own, settings for each participant and round, and who may take part."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from folkmoot.core.config import ConfigError
from folkmoot.federated.coordinator.config import load_federation
from folkmoot.federated.local import train_federation
from folkmoot.federated.participant.loop import Settings, take_part
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.wire import RequestRefused
from support.federation import RUN, federation_config, running_federation

OWN = '''
from collections.abc import Mapping
from folkmoot.federated.aggregate import Closing
from folkmoot.federated.aggregate.linear import mean
from folkmoot.federated.aggregate.strategy import Figures, Strategy, common_layout, write_linear


class Doubled(Strategy, frozen=True):
    """Twice the mean, for a test."""

    times: float = 2.0

    def settings(self, round_: int, participant_id: str) -> Mapping[str, float | str]:
        return {"rate": 0.5**round_, "for": participant_id}

    def combine(self, closing: Closing) -> Figures:
        terms, divisor = mean(closing.updates)
        write_linear(common_layout(closing), terms, divisor / self.times, closing.out)
        return {"times": self.times}
'''
TOML = """
run_id = "own"

[rounds]
rounds = 3

[server]
port = 0
state = "state"

[settings]
rate = 9.0
depth = 4

[aggregation]
strategy = "own_strategy:Doubled"
times = 3.0
"""


class Told(Participant):
    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []

    def init_weights(self) -> np.ndarray:
        return np.ones(2, np.float32)

    def train_round(
        self, weights: np.ndarray, epochs: int, epoch_base: int, config: dict[str, Any]
    ) -> tuple:
        self.told.append(config)
        return weights, 1, {}

    def properties(self) -> Mapping[str, Any]:
        return {"gpu": True, "memory": 32}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_strategy.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "federation.toml"
    path.write_text(TOML)
    return path


async def test_a_strategy_of_the_owners_own_combines_and_sets(file: Path) -> None:
    config = load_federation(file)
    part = Told()
    weights = await train_federation(config, [part])
    assert list(weights) == [27.0, 27.0]  # three rounds, each thrice the mean
    assert [(told["rate"], told["depth"]) for told in part.told] == [(0.5, 4), (0.25, 4)]
    assert len({told["for"] for told in part.told}) == 1


def test_mistakes_in_its_table_are_told_with_their_line(file: Path) -> None:
    file.write_text(TOML.replace("times = 3.0", "time = 3.0"))
    with pytest.raises(ConfigError, match=r"line 17: aggregation\.time"):
        load_federation(file)
    for named, said in {
        "own_strategy:Nothing": "has no 'Nothing'",
        "nowhere:Doubled": "cannot import 'nowhere'",
        "pathlib:Path": "no strategy",
    }.items():
        file.write_text(TOML.replace("own_strategy:Doubled", named))
        with pytest.raises(ValueError, match=said):
            load_federation(file)


async def test_who_lacks_what_the_owner_requires_does_not_take_part(tmp_path: Path) -> None:
    require = {"gpu": True, "memory": 16}
    config = federation_config(tmp_path, {"rounds": 2, "require": require})
    async with running_federation(tmp_path, config) as w:
        settings = Settings(address=w.server.address, run_id=RUN, bucket=config.bucket.url)
        for lacking in ({}, {"gpu": True, "memory": 8}, {"gpu": 1, "memory": 64}, {"memory": 64}):
            poor = type("Poor", (Told,), {"properties": lambda self, said=lacking: said})
            with pytest.raises(RequestRefused, match="must be") as refused:
                await take_part(poor(), settings)
            assert refused.value.code == grpc.StatusCode.FAILED_PRECONDITION
        await take_part(Told(), settings)
        assert w.state.phase == "FINISHED"
