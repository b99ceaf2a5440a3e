"""A result on trial: who trained on the samples passes, who did not is no better than chance."""

import numpy as np
import pytest
import torch

from folkmoot.core.method_config import DenseConfig, DistroConfig, MethodConfig, SparseLoCoConfig
from folkmoot.core.model_config import GptConfig
from folkmoot.learning import methods
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.models import build
from folkmoot.learning.trial import passes

MODEL = GptConfig(layers=1, heads=2, width=32, context=16)
METHODS = [DistroConfig(), DenseConfig(), SparseLoCoConfig(local_steps=2)]


def contribution(config: MethodConfig, tokens: np.ndarray) -> tuple[methods.Method, bytes]:
    model = build(MODEL, 0, "cpu")
    method = methods.build(model, config)
    made = method.contribute(lambda _: loss_and_gradients(model, tokens), 0, 0.01)
    return method, made.payload


@pytest.mark.parametrize("config", METHODS, ids=lambda c: type(c).__name__)
def test_who_trained_on_the_samples_passes_and_the_model_stays(config: MethodConfig) -> None:
    draw, model = np.random.default_rng(0), build(MODEL, 0, "cpu")
    before = {name: x.clone() for name, x in model.state_dict().items()}
    trained = elsewhere = 0
    for _ in range(10):
        shares = [draw.integers(0, 256, (4, 17), np.int64) for _ in range(4)]
        made = [contribution(config, share) for share in shares]
        along = made[0][0].contrast(made[0][1], [payload for _, payload in made[1:]])
        assert along is not None
        trained += passes(model, along, shares[0][:2])
        elsewhere += passes(model, along, draw.integers(0, 256, (2, 17), np.int64))
    assert trained >= 9
    assert elsewhere <= 8
    assert all(torch.equal(before[name], x) for name, x in model.state_dict().items())


def test_a_result_is_not_better_than_itself() -> None:
    tokens = np.random.default_rng(1).integers(0, 256, (2, 17), np.int64)
    for config in METHODS:
        method, payload = contribution(config, tokens)
        along = method.contrast(payload, [payload])
        assert along is not None
        assert not passes(build(MODEL, 0, "cpu"), along, tokens)
