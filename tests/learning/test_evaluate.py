"""Evaluation in slices gives the same score as all at once, and disturbs nothing."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from folkmoot.core.data_config import DataConfig, TokenFiles
from folkmoot.core.model_config import GptConfig
from folkmoot.learning.data import Samples, open_data
from folkmoot.learning.evaluate import Evaluation, Score
from folkmoot.learning.models import build, logits

TINY = GptConfig(vocab_size=50, layers=1, heads=2, width=32, context=20)


@pytest.fixture
def held_out(tmp_path: Path) -> Samples:
    tokens = np.random.default_rng(0).integers(0, 50, 20 * 13 + 1).astype(np.uint16)
    tokens.tofile(tmp_path / "v.bin")
    return open_data(DataConfig(TokenFiles((str(tmp_path / "v.bin"),)), 20, shuffle=False), 0)


def test_the_score_is_the_mean_over_all_tokens(held_out: Samples):
    model = build(TINY, 1, "cpu")
    tokens = torch.from_numpy(held_out.samples(range(13)))
    with torch.no_grad():
        plain = F.cross_entropy(
            logits(model, tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
        ).item()
    score = Evaluation(model, held_out).finish()
    assert score.loss == pytest.approx(plain, rel=1e-6)
    assert score.perplexity == pytest.approx(math.exp(plain), rel=1e-6)
    assert (score.tokens, score.sequences) == (260, 13)


@pytest.mark.parametrize("slice_size", [1, 5, 100])
def test_slices_add_up(held_out: Samples, slice_size: int):
    model = build(TINY, 1, "cpu")
    whole = Evaluation(model, held_out).finish(13)
    sliced = list(Evaluation(model, held_out).slices(slice_size))
    assert sliced[-1].loss == pytest.approx(whole.loss, rel=1e-6)
    assert [s.sequences for s in sliced] == [*range(slice_size, 13, slice_size), 13]


def test_evaluating_leaves_mode_gradients_and_weights_alone(held_out: Samples):
    model = build(TINY, 1, "cpu").train()
    before = [p.clone() for p in model.parameters()]
    Evaluation(model, held_out).work(2)
    assert model.training
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_finished_evaluation_does_no_more_work(held_out: Samples):
    evaluation = Evaluation(build(TINY, 1, "cpu"), held_out, sequences=3)
    assert math.isnan(evaluation.score.loss)
    assert not evaluation.done
    score = evaluation.finish()
    assert evaluation.done
    assert evaluation.work() == score
    assert score.sequences == 3


def test_a_hopeless_loss_has_infinite_perplexity():
    assert Score(1e4, 1, 1).perplexity == math.inf
