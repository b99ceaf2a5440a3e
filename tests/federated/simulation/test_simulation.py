"""Virtual participants in a pool of processes, through the real coordinator: repeatable."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from folkmoot.core.federation import Rules
from folkmoot.federated.coordinator.config import BESIDE_JOURNAL, Federation, rooted
from folkmoot.federated.model_file.reader import ModelFile, digest_of
from folkmoot.federated.participant.participant import Participant
from folkmoot.federated.simulation.simulation import SimulationFailed, prepared, simulate
from folkmoot.observe.federation_plot import plot_rounds, reported_means
from folkmoot.observe.logs import read_log

PEOPLE = 40


class Numbered(Participant):
    """Depends on its number alone."""

    def __init__(self) -> None:
        assert os.environ["FOLKMOOT_PARTICIPANTS"] == str(PEOPLE)
        self.number = int(os.environ["FOLKMOOT_PARTICIPANT"])

    def init_weights(self) -> np.ndarray:
        return np.zeros(100, np.float32)

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        own = np.random.default_rng(self.number).standard_normal(100).astype(np.float32)
        return weights + own, 1 + self.number % 3, {"loss": [2.0, float(self.number)]}


class Fails(Numbered):
    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        raise ZeroDivisionError("of the owner's own making")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes of a pool find this module as anybody's would: on the path."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, *filter(None, sys.path)]))


def config(folder: Path, seed: int = 0, **rules: object) -> Federation:
    made = Federation(run_id="virtual", rounds=Rules(**{"rounds": 3, **rules}))
    return prepared(rooted(made, folder, BESIDE_JOURNAL), folder, 0, seed)


async def test_the_same_seed_ends_with_the_same_bits_whatever_the_pool(tmp_path: Path) -> None:
    models = []
    for number, (processes, seed) in enumerate(((1, 0), (2, 0), (1, 1))):
        folder = tmp_path / f"{number}"
        told: list[int] = []
        done = await simulate(
            config(folder, seed, fraction_participants=0.5),
            "test_simulation:Numbered",
            PEOPLE,
            processes,
            told.append,
        )
        assert (done.rounds, done.updates) == (3, 3 * PEOPLE // 2)
        assert told == list(range(1, done.updates + 1))
        models.append(digest_of(Path(done.model)))
    assert models[0] == models[1]
    assert models[0] != models[2], "another seed selects others"
    records = [entry.record for entry in read_log(folder / "events.jsonl", "coordinator")]
    assert list(reported_means(records)["loss"]) == [1, 2]
    assert plot_rounds(folder / "events.jsonl", tmp_path / "x.png", "virtual") == ["loss"]
    assert (tmp_path / "x.png").stat().st_size > 1000
    with ModelFile(done.model) as model:
        assert np.isfinite(model.arrays()["weights"]).all()


async def test_participants_that_fail_end_the_simulation_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SimulationFailed, match="before the last round"):
        await simulate(config(tmp_path), "test_simulation:Fails", PEOPLE, 2)


def test_a_folder_that_has_a_simulation_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    with pytest.raises(FileExistsError, match="remove it"):
        config(tmp_path)
