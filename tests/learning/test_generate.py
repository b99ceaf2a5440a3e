"""Generation: seeded, bounded, streamed in whole characters."""

import pytest
import torch

from folkmoot.core.model_config import GptConfig
from folkmoot.learning import generate
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.models import build

MODEL = build(GptConfig(layers=2, heads=2, width=32, context=16), 3, "cpu")


def test_the_same_seed_writes_the_same_tokens():
    first = list(generate.tokens(MODEL, [1, 2], 30, seed=5))
    assert first == list(generate.tokens(MODEL, [1, 2], 30, seed=5))
    assert first != list(generate.tokens(MODEL, [1, 2], 30, seed=6))
    assert len(first) == 30


def test_without_temperature_the_likeliest_token_is_taken():
    first = next(generate.tokens(MODEL, [7, 8, 9], 1, temperature=0))
    with torch.no_grad():
        assert first == int(MODEL(torch.tensor([[7, 8, 9]]))[0, -1].argmax())


def test_top_k_keeps_to_the_k_likeliest():
    with torch.no_grad():
        best = set(MODEL(torch.tensor([[7]]))[0, -1].topk(3).indices.tolist())
    drawn = {next(generate.tokens(MODEL, [7], 1, top_k=3, seed=s)) for s in range(40)}
    assert drawn <= best
    assert len(drawn) > 1


def test_a_prompt_longer_than_the_context_is_allowed():
    assert len(list(generate.tokens(MODEL, list(range(100)), 3))) == 3


def test_an_empty_prompt_is_refused():
    with pytest.raises(ValueError, match="at least one token"):
        next(generate.tokens(MODEL, [], 3))


def test_text_comes_in_whole_characters_and_stops_at_the_end():
    stream = iter([*"aé🙂".encode(), 0, *b"never"])
    pieces = [p for p in generate.text(byte_tokenizer(), stream) if p]
    assert pieces == ["a", "é", "🙂"]
    broken = generate.text(byte_tokenizer(), iter([0xC3, 0x28, 0xF0]))
    assert "".join(broken) == "�(�"
