"""The shape of a run's model. Each kind is tagged: a config file says `type = "gpt"`."""

from typing import Annotated

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]


class GptConfig(Struct, frozen=True, tag="gpt", forbid_unknown_fields=True):
    """Folkmoot's own decoder, in the Llama layout: RMSNorm, rotary positions, SwiGLU."""

    vocab_size: Positive = 256
    layers: Positive = 4
    heads: Positive = 4
    kv_heads: int = 0
    """Key/value heads shared by groups of query heads; 0 means as many as `heads`."""
    width: Positive = 256
    hidden: int = 0
    """Width of the feed-forward layer; 0 means 8/3 of `width`, rounded up to 64."""
    context: Positive = 256
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = True

    def __post_init__(self) -> None:
        if self.width % self.heads or (self.width // self.heads) % 2:
            raise ValueError(
                f"width {self.width} must give each of {self.heads} heads an even share;"
                " change width or heads"
            )
        if self.kv_heads < 0 or self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads {self.kv_heads} must divide heads {self.heads}")

    @property
    def key_value_heads(self) -> int:
        return self.kv_heads or self.heads

    @property
    def feed_forward_width(self) -> int:
        return self.hidden or -(-8 * self.width // 3 // 64) * 64


class HuggingFaceConfig(Struct, frozen=True, tag="hf", forbid_unknown_fields=True):
    """Any causal language model that `transformers` can build.

    Give either `config`, the content of a `config.json` (new weights come from the run's
    seed), or `path`, a folder in the Hugging Face layout whose weights are the start.
    """

    config: dict[str, object] = {}
    path: str = ""

    def __post_init__(self) -> None:
        if bool(self.config) == bool(self.path):
            raise ValueError("a Hugging Face model needs exactly one of `config` and `path`")
        if self.config and "model_type" not in self.config:
            raise ValueError('the Hugging Face `config` needs `model_type`, such as "llama"')


ArchitectureConfig = GptConfig | HuggingFaceConfig
