"""Where bytes of data come from: a file here; anything with `size` and `read` elsewhere.

`learning` opens no sockets. A client that trains on data behind a URL hands in an object of
this shape (the bucket's), with its own retries.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

Buffer = bytes | memoryview


class DataError(ValueError):
    """Data that is missing, short or broken; the message names the file and the place."""


class Source(Protocol):
    name: str

    def size(self) -> int: ...

    def read(self, start: int, length: int) -> Buffer:
        """Exactly these bytes, or an error that says why not."""
        ...


@runtime_checkable
class RangeSource(Source, Protocol):
    """A source that fetches many ranges at once, which pays when each costs a round trip."""

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[Buffer]: ...


class FileSource:
    """A local file, read by position.

    Not memory-mapped: the same page cache serves both, but a mapped file that someone cuts
    short kills the process with SIGBUS, where a read ends in a sentence.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        try:
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise DataError(f"{path}: cannot open this data file: {error.strerror}") from error

    def size(self) -> int:
        return os.fstat(self._file.fileno()).st_size

    def read(self, start: int, length: int) -> bytes:
        try:
            found = os.pread(self._file.fileno(), length, start)
        except OSError as error:
            raise DataError(f"{self.name}: cannot read at byte {start}: {error}") from error
        if len(found) != length:
            raise DataError(
                f"{self.name}: the file ends at byte {self.size()}, but bytes {start} to"
                f" {start + length} are needed; was it cut short after it was opened?"
            )
        return found


def read_all(source: Source, ranges: Sequence[tuple[int, int]]) -> list[Buffer]:
    if len(ranges) > 1 and isinstance(source, RangeSource):
        return source.read_many(ranges)
    return [source.read(start, length) for start, length in ranges]
