"""Whether two machines have the same data: a short hash of what a run reads, made in a moment.

A file counts with its size and its bytes: all of a small one, of a large one pieces spread over it
that depend on its size alone. So everybody hashes the same bytes, wherever the file lies, and other
data under the same name does not pass; somebody who changes a few bytes on purpose may.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from blake3 import blake3

from folkmoot.core.coordinator.config import Model
from folkmoot.core.data_config import MixtureConfig, RemoteTokens, SourceConfig, TextFiles
from folkmoot.learning.data import OpenUrl
from folkmoot.learning.data.source import DataError, FileSource, Source, read_all

# Of a file that is larger, so many pieces of such a size are read.
WHOLE, PIECES, PIECE = 1 << 20, 32, 32 << 10
HEX = 32


def fingerprints(model: Model, open_url: OpenUrl | None = None) -> dict[str, str]:
    """Of the data, the held-out data and the tokenizer, as far as a run has them.

    Raises `DataError`, or what `open_url` raises, when one cannot be read here.
    """
    found = {}
    for name, source in (("data", model.data), ("held_out", model.held_out)):
        if source is not None:
            found[name] = _hash(_of_source(source, open_url))
    if tokenizer := model.tokenizer or _tokenizer(model.data):
        found["tokenizer"] = _hash([_of_tokenizer(tokenizer)])
    return found


def written(found: dict[str, str]) -> str:
    """As a run's file has it: `data:… tokenizer:…`."""
    return " ".join(f"{name}:{value}" for name, value in found.items())


def differing(wanted: str, found: dict[str, str]) -> list[str]:
    """Which of those that a run names are not what was found."""
    named = (part.partition(":") for part in wanted.split())
    return [name for name, _, value in named if found.get(name) != value]


def _tokenizer(source: SourceConfig | None) -> str:
    return source.tokenizer if isinstance(source, TextFiles) else ""


def _hash(parts: Iterable[bytes]) -> str:
    hasher = blake3()
    for part in parts:
        hasher.update(len(part).to_bytes(8, "little") + part)
    return hasher.hexdigest()[:HEX]


def _of_source(source: SourceConfig, open_url: OpenUrl | None) -> Iterator[bytes]:
    match source:
        case MixtureConfig(parts):
            for part in parts:
                yield b"part"
                yield from _of_source(part.source, open_url)
        case RemoteTokens(urls):
            if open_url is None:
                raise DataError(f"{urls[0]}: it is not read here")
            for url in urls:
                yield _of_file(open_url(url))
        case _:
            for path in source.paths:
                yield _of_file(FileSource(path))


def _of_file(file: Source) -> bytes:
    size = file.size()
    ranges = [(0, size)]
    if size > WHOLE:
        ranges = [((size - PIECE) * n // (PIECES - 1), PIECE) for n in range(PIECES)]
    hasher = blake3(size.to_bytes(8, "little"))
    for piece in read_all(file, ranges):
        hasher.update(piece)
    return hasher.digest()


def _of_tokenizer(name: str) -> bytes:
    if name == "bytes":
        return b"bytes"
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    return _of_file(FileSource(path))
