"""Where a run's data lies.

These are values of a run's config file. They are pure: a path or URL here is a
name, opened by `learning` (files) or through a source the client hands in (URLs).
Each kind is tagged, so a config file says `type = "tokens"` and a misspelt key is refused.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Positive = Annotated[int, Meta(ge=1)]
TokenType = Literal["uint16", "uint32"]


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


class ParquetFiles(Struct, frozen=True, tag="parquet", forbid_unknown_fields=True):
    """A Hugging Face dataset on disk whose rows are already tokenised sequences."""

    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    column: str = "input_ids"


class MixturePart(Struct, frozen=True, forbid_unknown_fields=True):
    """One source of a mixture and its share; shares need not sum to one."""

    weight: Annotated[float, Meta(gt=0)]
    source: "TokenFiles | RemoteTokens | TextFiles | ParquetFiles"


class MixtureConfig(Struct, frozen=True, tag="mixture", forbid_unknown_fields=True):
    """Several sources drawn from in proportion to their weights."""

    parts: Annotated[tuple[MixturePart, ...], Meta(min_length=1)]


SourceConfig = TokenFiles | RemoteTokens | TextFiles | ParquetFiles | MixtureConfig


class DataConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """A source cut into sequences of `sequence_length` tokens and one more to predict."""

    source: SourceConfig
    sequence_length: Positive = 256
    shuffle: bool = True
    wrap: bool = False
    """Start over when the source is used up. Without it, running out is an error."""
