"""What models are worth: who says it, which one is kept, and when it is over."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from folkmoot.core.federation import messages as m
from folkmoot.core.federation.evaluation import mean_evaluation
from folkmoot.core.federation.state import Best, Delivery, Evaluation
from folkmoot.federated import wire
from folkmoot.federated.coordinator import events
from folkmoot.federated.coordinator.evaluation import EvaluationConfig
from folkmoot.federated.local import train_federation
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.participant import BadResult, Participant
from support.federation import federation_config, logged, running_federation


class Walks(Participant):
    """Goes on by one each round; its loss is the distance to 3."""

    def __init__(self, samples: int = 1, evaluated: Any = None) -> None:
        self.samples, self.evaluated = samples, evaluated

    def init_weights(self) -> np.ndarray:
        return np.zeros(2, np.float32)

    def train_round(self, weights: np.ndarray, epochs: int, epoch_base: int) -> tuple:
        return weights + 1, 1, {}

    def evaluate(self, weights: np.ndarray) -> tuple:
        if self.evaluated is not None:
            return self.evaluated
        loss = abs(float(weights[0]) - 3)
        return loss, self.samples, {"accuracy": 1 / (1 + loss), "own": float(self.samples)}


async def test_participants_evaluate_and_the_best_model_is_kept(tmp_path: Path) -> None:
    config = federation_config(tmp_path, {"rounds": 8, "min_participants": 2})
    await train_federation(config, [Walks(1), Walks(3)], tmp_path)
    found = [(e.round, e.loss, e.best) for e in logged(tmp_path / "state", m.Evaluated)]
    # Round 1 has the first weights, 0; round 4 is given the model with 3.
    assert found == [
        (1, 3.0, True), (2, 2.0, True), (3, 1.0, True), (4, 0.0, True),
        (5, 1.0, False), (6, 2.0, False), (7, 3.0, False),
    ]  # fmt: skip
    summary = logged(tmp_path / "state", events.EvaluationSummary)[0]
    assert (summary.round, summary.participants, summary.samples) == (1, 2, 4)
    assert summary.metrics == {"accuracy": 0.25, "own": (1 * 1 + 3 * 3) / 4}
    (kept,) = (tmp_path / "state/best").iterdir()
    assert kept.name == "4.safetensors"
    with ModelFile(kept) as model:
        assert list(model.arrays()["weights"]) == [3.0, 3.0]


async def test_it_is_over_when_models_get_no_better(tmp_path: Path) -> None:
    config = federation_config(tmp_path, {"rounds": 100, "stop_after": 2})
    async with running_federation(tmp_path, config) as w:
        await w.take_part(Walks())
        assert w.state.phase == "FINISHED"
        assert (w.state.round, w.state.best) == (7, Best(4, 0.0))


def far_from_two(weights: np.ndarray) -> tuple[float, dict[str, float]]:
    return abs(float(weights[0]) - 2), {"first": float(weights[0])}


async def test_the_owner_evaluates_every_new_model_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("owners_own")
    module.far_from_two = far_from_two  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "owners_own", module)
    evaluation = EvaluationConfig(central="owners_own:far_from_two", every=0)
    rules = {"rounds": 50, "stop_after": 2}
    config = federation_config(tmp_path, rules, evaluation=evaluation)
    await train_federation(config, [Walks()], tmp_path)
    found = [
        (e.round, e.loss, e.metrics["first"])
        for e in logged(tmp_path / "state", events.CentrallyEvaluated)
    ]
    assert found == [(1, 2.0, 0.0), (2, 1.0, 1.0), (3, 0.0, 2.0), (4, 1.0, 3.0), (5, 2.0, 4.0)]
    assert [path.name for path in (tmp_path / "state/best").iterdir()] == ["3.safetensors"]


async def test_the_best_model_is_known_after_a_restart(tmp_path: Path) -> None:
    config = federation_config(tmp_path, {"rounds": 3})
    async with running_federation(tmp_path, config) as w:
        (a,) = await w.join("a")
        await a.deliver([1.0])
        await w.coordinator.until(lambda s: s.round == 1)
        told = wire.Evaluation(loss=0.5, samples=7, metrics='{"x": 1}')
        await a.deliver([2.0], 1, evaluation=told)
        await w.coordinator.until(lambda s: s.round == 2)
        nonsense = wire.Evaluation(loss=float("nan"), samples=7)
        await a.start(2)
    # As if the crash had come before it was kept; perhaps it did.
    (tmp_path / "state/best/1.safetensors").unlink(missing_ok=True)
    async with running_federation(tmp_path, config) as w:
        assert w.state.best == Best(1, 0.5)
        assert (tmp_path / "state/best/1.safetensors").exists()
        (a,) = await w.join("a")
        await a.deliver([3.0], 2, evaluation=nonsense)
        await w.server.finished()
        assert (w.state.best, w.state.since_best) == (Best(1, 0.5), 0)
    (refused,) = logged(tmp_path / "state", events.ReportRefused)
    assert "nan" in refused.reason


async def test_an_evaluation_that_cannot_be_sent_is_the_owners_to_know(tmp_path: Path) -> None:
    for number, wrong in enumerate([(float("nan"), 1, {}), (1.0, 0, {}), 3.0]):
        folder = tmp_path / str(number)
        config = federation_config(folder, {"rounds": 2})
        async with running_federation(folder, config) as w:
            with pytest.raises(BadResult, match="evaluate"):
                await w.take_part(Walks(evaluated=wrong))


def told(*found: tuple[float, int], participants: int = 0) -> list[Delivery]:
    return [
        Delivery(str(n), 0, "", 1, Evaluation(*one), participants) for n, one in enumerate(found)
    ]


def test_nobody_counts_for_more_than_ten_times_the_median() -> None:
    assert mean_evaluation(told((1.0, 2), (4.0, 1))).loss == 2.0
    many = [(1.0, 10)] * 10 + [(-1e30, 2**31 - 1)]
    assert mean_evaluation(told(*many)).loss == pytest.approx(-0.5e30)


def test_an_aggregator_counts_for_those_it_speaks_for() -> None:
    region = told((3.0, 1000), participants=10)
    assert mean_evaluation([*told((1.0, 100)), *region]).loss == pytest.approx((100 + 3000) / 1100)
    alone = told((3.0, 10_000), participants=2)
    assert mean_evaluation(
        [*told((1.0, 100), (1.0, 100), (1.0, 100)), *alone]
    ).loss == pytest.approx((300 + 3 * 2 * 1000) / 2300)
