"""Text files tokenised in memory when they are opened, documents joined by the end token."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from folkmoot.core.data_config import TextFiles
from folkmoot.learning.data import tokenizer
from folkmoot.learning.data.source import DataError


class TextSource:
    """Looks like a token file; holds its tokens in memory."""

    def __init__(self, config: TextFiles, limit: int) -> None:
        self.name = ", ".join(config.paths[:3])
        self._tokens = tokenise(config.paths, tokenizer.load(config.tokenizer), limit).data.cast(
            "B"
        )

    def size(self) -> int:
        return len(self._tokens)

    def read(self, start: int, length: int) -> memoryview:
        return self._tokens[start : start + length]


def tokenise(
    paths: Sequence[str], using: tokenizer.Tokenizer, limit: int
) -> npt.NDArray[np.uint32]:
    texts = []
    for path in paths:
        texts.append((read_text(Path(path), limit), path, 0))
        limit -= len(texts[-1][0])
    end = np.array([] if using.end is None else [using.end], dtype=np.uint32)
    pieces = [piece for tokens in encode_many(using, texts) for piece in (tokens, end)]
    return np.concatenate(pieces).astype("<u4")


def read_text(path: Path, limit: int) -> bytes:
    try:
        if path.stat().st_size > limit:
            raise DataError(
                f"{path}: too much text to tokenise in memory; make a token file of it once,"
                f" with: folkmoot data prepare {path} -o tokens.bin"
            )
        return path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot read this text file: {error.strerror}") from error


def encode_many(
    using: tokenizer.Tokenizer, texts: Sequence[tuple[bytes, str, int]]
) -> list[npt.NDArray[np.uint32]]:
    """Tokens of each (text, its file, its place there); the places are for error messages."""
    if using.is_bytes:
        return [np.frombuffer(text, dtype=np.uint8).astype(np.uint32) for text, _, _ in texts]
    return using.encode_batch([_decoded(*text) for text in texts])


def _decoded(text: bytes, path: str, offset: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: byte {offset + error.start} is not UTF-8 text ({error.reason}); convert the"
            " file, or use the tokenizer `bytes`, which takes any file"
        ) from error
