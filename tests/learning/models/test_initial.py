"""First weights: fixed bits, right spread, independent of threads."""

import hashlib

import numpy as np
import pytest
import torch

from folkmoot.core.model_config import GptConfig, HuggingFaceConfig
from folkmoot.learning.models import build
from folkmoot.learning.models.initial import fill, stream

KNOWN = [
    "0x1.3468120000000p+1",
    "0x1.fb0ed00000000p-5",
    "0x1.0c3ce20000000p-1",
    "0x1.c8d4120000000p-3",
]
TINY = GptConfig(layers=2, heads=2, width=64, context=32)


def digest(model: torch.nn.Module) -> str:
    state = hashlib.sha256()
    for name, weight in sorted(model.named_parameters()):
        state.update(name.encode() + weight.detach().numpy().tobytes())
    return state.hexdigest()


def test_the_first_weights_are_these_bits_on_every_machine():
    """A known answer: it may change only with a new version of the initialiser."""
    first = torch.empty(4)
    fill(first, 1.0, stream(7, "model.embed_tokens.weight"))
    assert [value.hex() for value in first.tolist()] == KNOWN


def test_thread_count_does_not_change_the_first_weights():
    digests = set()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        digests.add(digest(build(TINY, seed=7, device="cpu")))
    assert len(digests) == 1


def test_another_seed_gives_other_weights():
    assert digest(build(TINY, 1, "cpu")) != digest(build(TINY, 2, "cpu"))


def test_parameters_of_the_same_shape_differ_from_each_other():
    model = build(TINY, 7, "cpu")
    first, second = (model.get_parameter(f"model.layers.{i}.mlp.up_proj.weight") for i in (0, 1))
    assert not torch.equal(first, second)


def test_the_global_random_state_plays_no_part_and_is_left_alone():
    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64}
    depth = {"num_hidden_layers": 1, "num_attention_heads": 2}
    llama = HuggingFaceConfig(config={"model_type": "llama", **sizes, **depth})
    torch.manual_seed(1)
    first = digest(build(llama, 7, "cpu"))
    torch.manual_seed(2)
    before = torch.random.get_rng_state()
    assert digest(build(llama, 7, "cpu")) == first
    assert torch.equal(torch.random.get_rng_state(), before)


def test_a_filled_tensor_is_close_to_normal():
    values = torch.empty(1_500_000)
    fill(values, 0.02, stream(3, "w"))
    sample = values.double().numpy() / 0.02
    assert abs(sample.mean()) < 0.004
    assert sample.std() == pytest.approx(1.0, abs=0.003)
    assert np.abs(sample).max() < 3.47
    assert (np.abs(sample) < 1).mean() == pytest.approx(0.6745, abs=0.012)


def test_norm_weights_start_at_one_and_residual_projections_smaller():
    model = build(GptConfig(layers=8, heads=2, width=64, context=32), 7, "cpu")
    assert torch.equal(model.get_parameter("model.norm.weight"), torch.ones(64))
    up = model.get_parameter("model.layers.0.mlp.up_proj.weight").std()
    down = model.get_parameter("model.layers.0.mlp.down_proj.weight").std()
    assert (up / down).item() == pytest.approx(4.0, rel=0.05)
