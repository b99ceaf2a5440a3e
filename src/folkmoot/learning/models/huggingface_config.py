"""Our GPT's config in Hugging Face's words, and back.

A checkpoint of the GPT carries this as its `config.json`; `transformers` then builds a
stock `LlamaForCausalLM` from it.
"""

from typing import Any

from folkmoot.core.model_config import GptConfig


def llama_config(config: GptConfig) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.width,
        "intermediate_size": config.feed_forward_width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.key_value_heads,
        "head_dim": config.width // config.heads,
        "max_position_embeddings": config.context,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": config.tie_embeddings,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": "float32",
    }


def gpt_from_llama(config: dict[str, Any]) -> GptConfig | None:
    """The GPT a `config.json` describes, or None when it is another architecture."""
    if config.get("model_type") != "llama":
        return None
    width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    ours = GptConfig(
        vocab_size=int(config["vocab_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        width=width,
        hidden=int(config["intermediate_size"]),
        context=int(config["max_position_embeddings"]),
        rope_theta=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
        norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        tie_embeddings=bool(config.get("tie_word_embeddings", False)),
    )
    plain = (
        rope.get("rope_type", "default") == "default"
        and config.get("hidden_act", "silu") == "silu"
        and not config.get("attention_bias")
        and not config.get("mlp_bias")
        and int(config.get("head_dim") or width // heads) == width // heads
    )
    return ours if plain else None
