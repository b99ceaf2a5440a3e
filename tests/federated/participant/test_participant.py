"""The participant SDK: what it accepts, what it refuses, what it survives."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from folkmoot.federated import Participant
from folkmoot.federated.frameworks import from_sklearn, from_torch, to_sklearn, to_torch
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.participant import (
    BadResult,
    checked_result,
    encode_figures,
    named,
)
from support.federation import federation_config, running_federation, with_bucket


class Does(Participant):
    def __init__(self, train: Any, start: Any = None) -> None:
        self._train = train
        self._start = np.zeros(2, np.float32) if start is None else start

    def init_weights(self) -> Any:
        return self._start

    def train_round(self, weights: Any, epochs: int, epoch_base: int) -> Any:
        return self._train(weights)


async def test_named_arrays_keep_their_names_shapes_and_dtypes(tmp_path: Path) -> None:
    start = {
        "layer.weight": np.ones((3, 2), np.float32),
        "count": np.array(4),
        "half": np.ones(5, np.float16),
        "empty": np.zeros((0, 3)),
    }

    def train(weights: dict[str, np.ndarray]) -> tuple:
        assert {k: (v.shape, v.dtype) for k, v in weights.items()} == {
            k: (v.shape, v.dtype) for k, v in start.items()
        }
        assert not any(v.flags.writeable for v in weights.values())
        return {k: v + 1 for k, v in weights.items()}, 1, {}

    async with running_federation(tmp_path) as w:
        await w.take_part(Does(train, start))
        with ModelFile(w.coordinator.store.global_path(2)) as model:
            for name, array in model.arrays().items():
                np.testing.assert_array_equal(array, start[name] + 1)


async def test_a_participants_own_error_is_its_own(tmp_path: Path) -> None:
    def train(weights: np.ndarray) -> tuple:
        raise ZeroDivisionError("in the owner's code")

    async with running_federation(tmp_path) as w:
        with pytest.raises(ZeroDivisionError, match="in the owner's code"):
            await w.take_part(Does(train))


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (np.ones(2), "must return"),
        ((np.ones(2), 1), "must return"),
        (([1.0], 1, {}), "array or a mapping"),
        (({"a": [1.0]}, 1, {}), "numpy arrays by name"),
        ((np.ones(2), 1.5, {}), "must be an int"),
        ((np.ones(2), True, {}), "must be an int"),
        ((np.ones(2), -1, {}), "must be from 0"),
        ((np.ones(2), 1, {"loss": object()}), "neither a number"),
    ],
)
def test_a_result_that_cannot_be_sent_is_told_at_once(result: Any, reason: str) -> None:
    with pytest.raises(BadResult, match=reason):
        checked_result(result)


def test_metrics_may_be_arrays() -> None:
    assert encode_figures({"a": np.arange(3), "b": np.float32(0.5)}) == '{"a":[0,1,2],"b":0.5}'
    assert named(np.ones(1)).keys() == {"weights"}


async def test_a_bad_update_is_told_and_the_participant_tries_again(tmp_path: Path) -> None:
    tries = iter([np.nan, 1.0])
    async with running_federation(tmp_path) as w:
        train = lambda weights: (weights + np.float32(next(tries)), 1, {})  # noqa: E731
        await w.take_part(Does(train))
        assert list(await w.global_of(2)) == [1.0, 1.0]


async def test_an_expelled_participant_stops_and_says_why(tmp_path: Path) -> None:
    async with running_federation(tmp_path, max_strikes=1) as w:
        bad = Does(lambda weights: (weights * np.float32(np.nan), 1, {}))
        with pytest.raises(Exception, match="too many bad updates"):
            await w.take_part(bad)


async def test_late_participants_wait_for_room_and_leave_when_all_is_done(tmp_path: Path) -> None:
    async with running_federation(tmp_path, rounds=3) as w:
        train = lambda weights: (weights, 1, {})  # noqa: E731
        await asyncio.gather(*(w.take_part(Does(train)) for _ in range(4)))
        assert w.state.phase == "FINISHED"


async def test_weights_given_at_the_start_make_an_initial_round_needless(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    save_file({"weights": np.array([5.0, 6.0])}, tmp_path / "given.safetensors")
    config = federation_config(tmp_path, {"rounds": 1}, initial_weights="given.safetensors")
    async with running_federation(tmp_path, config) as w:
        await w.take_part(Does(lambda weights: (weights * 2, 1, {})))
        assert list(await w.global_of(1)) == [10.0, 12.0]


async def test_asynchronous_rounds_use_updates_as_they_come(tmp_path: Path) -> None:
    from folkmoot.federated.aggregate.fedbuff import FedBuff

    rules = {"rounds": 6, "min_participants": 1, "spares": 3, "buffer": 2, "max_staleness": 2}
    config = federation_config(tmp_path, rules, aggregation=FedBuff())
    config = with_bucket(config, keep_rounds=5)
    async with running_federation(tmp_path, config) as w:
        train = lambda weights: (weights + np.float32(1), 1, {})  # noqa: E731
        await asyncio.gather(*(w.take_part(Does(train)) for _ in range(4)))
        assert w.state.round == 6


def test_torch_modules_go_there_and_back() -> None:
    one = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    weights = from_torch(one)
    for array in weights.values():
        array.flags.writeable = False
    to_torch(other, weights)
    for name, tensor in one.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    with pytest.raises(RuntimeError, match="Unexpected key"):
        to_torch(other, {**weights, "more": np.ones(1)})


def test_sklearn_estimators_go_there_and_back() -> None:
    # Take seconds, also of workers that only collect this file.
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    x, y = np.random.default_rng(0).normal(size=(60, 4)), np.arange(60) % 3
    for make, attributes in (
        (LogisticRegression, ("coef_", "intercept_")),
        (lambda: MLPClassifier((5, 4), max_iter=300), ("coefs_", "intercepts_")),
    ):
        one, other = make().fit(x, y), make().fit(x[::-1], y)
        to_sklearn(other, from_sklearn(one, attributes), attributes)
        np.testing.assert_array_equal(one.predict(x), other.predict(x))


def test_bfloat16_modules_go_there_and_back_exactly() -> None:
    one = torch.nn.Linear(3, 4).to(torch.bfloat16)
    other = torch.nn.Linear(3, 4).to(torch.bfloat16)
    weights = from_torch(one)
    assert {array.dtype for array in weights.values()} == {np.dtype(np.float32)}
    to_torch(other, weights)
    for name, tensor in one.state_dict().items():
        assert other.state_dict()[name].dtype == torch.bfloat16
        assert torch.equal(tensor, other.state_dict()[name])


def test_of_a_module_with_adapters_the_adapters_travel_alone() -> None:
    """As PEFT leaves a model: what is frozen needs no gradient, LoRA's two factors do."""

    def made() -> torch.nn.Module:
        layer = torch.nn.Module()
        layer.base = torch.nn.Linear(8, 8)
        layer.lora_A, layer.lora_B = torch.nn.Linear(8, 2, False), torch.nn.Linear(2, 8, False)
        layer.base.requires_grad_(False)
        return layer

    one, other = made(), made()
    before = other.base.weight.clone()
    weights = from_torch(one, trainable=True)
    assert sorted(weights) == ["lora_A.weight", "lora_B.weight"]
    to_torch(other, weights, trainable=True)
    assert torch.equal(other.lora_B.weight, one.lora_B.weight)
    assert torch.equal(other.base.weight, before)
    with pytest.raises(ValueError, match="differ in"):
        to_torch(other, {"lora_A.weight": weights["lora_A.weight"]}, trainable=True)
