"""Our GPT is a Llama: same names, same logits; and it is causal."""

import pytest
import torch

from folkmoot.core.model_config import GptConfig, HuggingFaceConfig
from folkmoot.learning.models import best_device, build, logits
from folkmoot.learning.models.huggingface_config import llama_config


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [0, 1])
def test_transformers_llama_gives_the_same_logits_from_the_same_weights(tied: bool, kv_heads: int):
    import transformers  # takes seconds, also of workers that only collect this file

    config = GptConfig(vocab_size=97, layers=3, heads=2, kv_heads=kv_heads, width=64, context=48,
                 tie_embeddings=tied)  # fmt: skip
    ours = build(config, 5, "cpu")
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama_config(config)))
    missing, unexpected = theirs.load_state_dict(ours.state_dict(), strict=False)
    assert unexpected == []
    assert missing == (["lm_head.weight"] if tied else [])
    theirs.tie_weights()
    tokens_BT = torch.randint(0, 97, (3, 48), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(
            logits(ours, tokens_BT), logits(theirs.eval(), tokens_BT), rtol=1e-5, atol=1e-6
        )


def test_a_token_never_sees_those_after_it():
    model = build(GptConfig(layers=2, heads=2, width=32, context=16), 5, "cpu")
    tokens_BT = torch.arange(16).view(1, 16)
    changed = tokens_BT.clone()
    changed[0, 10:] = 200
    with torch.no_grad():
        before, after = model(tokens_BT), model(changed)
    torch.testing.assert_close(before[0, :10], after[0, :10])
    assert not torch.allclose(before[0, 10:], after[0, 10:])


def test_a_sequence_longer_than_the_context_is_refused():
    model = build(GptConfig(layers=1, heads=2, width=32, context=8), 5, "cpu")
    with pytest.raises(ValueError, match="context of 8"):
        model(torch.zeros(1, 9, dtype=torch.int64))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2"])
def test_any_hugging_face_architecture_is_built_from_its_config(kind: str):
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1,
             "num_attention_heads": 2, "num_key_value_heads": 2}  # fmt: skip
    if kind == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 1, "n_head": 2}
    model = build(
        HuggingFaceConfig(config={"model_type": kind, "vocab_size": 64, **sizes}), 5, "cpu"
    )
    assert logits(model, torch.zeros(2, 5, dtype=torch.int64)).shape == (2, 5, 64)


def test_an_unknown_architecture_is_a_clear_error():
    with pytest.raises(ValueError, match="nonesuch"):
        build(HuggingFaceConfig(config={"model_type": "nonesuch"}), 5, "cpu")


def test_a_folder_without_a_model_is_a_clear_error(tmp_path):
    with pytest.raises(ValueError, match=r"no config\.json"):
        build(HuggingFaceConfig(path=str(tmp_path)), 5, "cpu")


def test_the_best_device_is_one_torch_can_use():
    assert torch.zeros(1, device=best_device()).sum() == 0
