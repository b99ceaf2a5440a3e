"""What a run is made of besides its rules: the model's shape and where its data lies.

These are the values of a run's config file. They are pure: a path or URL here is a
name, opened by `learning` (files) or through a source the client hands in (URLs).
Each kind is tagged, so a config file says `type = "gpt"` and a misspelt key is refused.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]
TokenType = Literal["uint16", "uint32"]


class Gpt(Struct, frozen=True, tag="gpt", forbid_unknown_fields=True):
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


class HuggingFace(Struct, frozen=True, tag="hf", forbid_unknown_fields=True):
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


Model = Gpt | HuggingFace


class TokenFiles(Struct, frozen=True, tag="tokens", forbid_unknown_fields=True):
    """Token files (`.bin` raw little-endian, or `.npy`), read in the order given."""

    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    dtype: TokenType = "uint16"
    """Of `.bin` files; an `.npy` file carries its own."""


class RemoteTokens(Struct, frozen=True, tag="remote", forbid_unknown_fields=True):
    """Token files behind URLs (http, https, s3, gs, az), read by byte ranges."""

    urls: Annotated[tuple[str, ...], Meta(min_length=1)]
    dtype: TokenType = "uint16"


class TextFiles(Struct, frozen=True, tag="text", forbid_unknown_fields=True):
    """Text files tokenised when they are read: small corpora, no preparation."""

    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    tokenizer: str = "bytes"


class Parquet(Struct, frozen=True, tag="parquet", forbid_unknown_fields=True):
    """A Hugging Face dataset on disk whose rows are already tokenised sequences."""

    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    column: str = "input_ids"


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """One source of a mixture and its share; shares need not sum to one."""

    weight: Annotated[float, Meta(gt=0)]
    source: "TokenFiles | RemoteTokens | TextFiles | Parquet"


class Mixture(Struct, frozen=True, tag="mixture", forbid_unknown_fields=True):
    """Several sources drawn from in proportion to their weights."""

    parts: Annotated[tuple[Part, ...], Meta(min_length=1)]


Source = TokenFiles | RemoteTokens | TextFiles | Parquet | Mixture


class Data(Struct, frozen=True, forbid_unknown_fields=True):
    """A source cut into sequences of `sequence_length` tokens and one more to predict."""

    source: Source
    sequence_length: Positive = 256
    shuffle: bool = True
    wrap: bool = False
    """Start over when the source is used up. Without it, running out is an error."""
