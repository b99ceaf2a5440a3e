"""Data for training: `open_data(config, seed).samples(batch_ids)` gives tokens [n, length + 1].

Every client that opens the same config with the same seed finds the same tokens under the
same number, and reads only those it asks for.
"""

from collections.abc import Callable, Sequence

import numpy as np

from folkmoot.core.data_config import (
    DataConfig,
    MixtureConfig,
    ParquetFiles,
    RemoteTokens,
    SourceConfig,
    TextFiles,
    TokenFiles,
)
from folkmoot.learning.data import mixture, source, tokens
from folkmoot.learning.data.mixture import Provider
from folkmoot.learning.data.source import DataError

__all__ = ["DataError", "OpenUrl", "Provider", "Samples", "open_data"]

OpenUrl = Callable[[str], source.Source]
TEXT_LIMIT = 1 << 30
"""Bytes of text that are tokenised in memory; more should be prepared once, on disk."""


class Samples:
    """The one thing a learner sees of data."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.count = provider.count

    def samples(self, batch_ids: Sequence[int]) -> tokens.Tokens:
        ids = np.asarray(batch_ids, dtype=np.int64)
        if len(ids) == 0 or int(ids.min()) < 0:
            raise ValueError(f"batch ids are one or more numbers from 0 up; got {batch_ids!r}")
        return self.provider.samples(ids)


def open_data(
    config: DataConfig, seed: int, vocab_size: int = 0, open_url: OpenUrl | None = None
) -> Samples:
    """`open_url` opens remote sources; `vocab_size` > 0 refuses tokens a model cannot take."""

    def drawn(part: SourceConfig, number: int) -> Provider:
        leaf = _open(part, config.sequence_length, vocab_size, open_url)
        return mixture.Drawn(leaf, seed + number, config.shuffle, config.wrap)

    if isinstance(config.source, MixtureConfig):
        parts = [drawn(part.source, n) for n, part in enumerate(config.source.parts)]
        weights = [part.weight for part in config.source.parts]
        return Samples(mixture.Mixture(parts, weights))
    return Samples(drawn(config.source, 0))


def _open(config: SourceConfig, length: int, vocab_size: int, open_url: OpenUrl | None) -> Provider:
    match config:
        case TokenFiles():
            sources = [source.FileSource(path) for path in config.paths]
            files = [tokens.TokenFile(one, config.dtype) for one in sources]
        case RemoteTokens():
            if open_url is None:
                raise DataError(f"{config.urls[0]}: nothing was given to open URLs with")
            files = [tokens.TokenFile(open_url(url), config.dtype) for url in config.urls]
        case TextFiles():
            from folkmoot.learning.data.text import TextSource

            files = [tokens.TokenFile(TextSource(config, TEXT_LIMIT), "uint32")]
        case ParquetFiles():
            from folkmoot.learning.data.parquet import ParquetRows

            return ParquetRows(config.paths, config.column, length, vocab_size)
        case _:
            raise TypeError(f"a mixture of mixtures is not a source: {config}")
    return tokens.Sequences(files, length, vocab_size)
