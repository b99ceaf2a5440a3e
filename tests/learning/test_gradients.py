"""Gradients are those of the whole batch's mean loss, however the batch is cut."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from folkmoot.core.model_config import GptConfig
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.models import build, logits

TINY = GptConfig(vocab_size=50, layers=2, heads=2, width=32, context=24)
TOKENS = np.random.default_rng(0).integers(0, 50, (6, 25)).astype(np.uint16)


def gradients(micro_batch: int, precision="fp32") -> tuple[float, dict[str, torch.Tensor]]:
    model = build(TINY, 3, "cpu")
    loss = loss_and_gradients(model, TOKENS, micro_batch, precision)
    return loss, {name: p.grad.clone() for name, p in model.named_parameters()}


def test_the_gradient_is_that_of_the_mean_loss_over_all_tokens():
    model = build(TINY, 3, "cpu")
    tokens = torch.from_numpy(TOKENS.astype(np.int64))
    plain = F.cross_entropy(logits(model, tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    plain.backward()
    loss, found = gradients(0)
    assert loss == pytest.approx(plain.item(), rel=1e-6)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad)


@pytest.mark.parametrize("micro_batch", [1, 4, 6, 100])
def test_cutting_the_batch_does_not_change_the_gradient(micro_batch: int):
    loss, whole = gradients(0)
    cut_loss, cut = gradients(micro_batch)
    assert cut_loss == pytest.approx(loss, rel=1e-6)
    for name in whole:
        torch.testing.assert_close(cut[name], whole[name], rtol=1e-4, atol=1e-7)


def test_the_same_batch_gives_the_same_bits():
    (loss, first), (again, second) = gradients(2), gradients(2)
    assert loss == again
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_gradients_are_added_to_those_already_there():
    model = build(TINY, 3, "cpu")
    loss_and_gradients(model, TOKENS)
    loss_and_gradients(model, TOKENS)
    _, once = gradients(0)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, 2 * once[name])


def test_bf16_computes_near_fp32_and_leaves_weights_and_gradients_fp32():
    loss, _ = gradients(0)
    low, found = gradients(0, "bf16")
    assert low != loss
    assert low == pytest.approx(loss, rel=0.02)
    assert {g.dtype for g in found.values()} == {torch.float32}


def test_a_batch_without_tokens_is_refused():
    with pytest.raises(ValueError, match="at least 2 tokens"):
        loss_and_gradients(build(TINY, 3, "cpu"), TOKENS[:0])


def test_a_loss_that_is_not_finite_is_an_error_not_a_gradient():
    model = build(TINY, 3, "cpu")
    with torch.no_grad():
        model.get_parameter("model.norm.weight").fill_(float("inf"))
    with pytest.raises(FloatingPointError, match="learning rate"):
        loss_and_gradients(model, TOKENS)
