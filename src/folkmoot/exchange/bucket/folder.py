"""Bodies of objects, piece by piece, into files that a folder bucket keeps.

obstore's own folder store renames too, but never syncs.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from folkmoot.host.files import StagedFile

PART = 8 << 20
"""Bytes moved at once, and a multipart upload's part: 10,000 parts make 80 GB."""
Buffer = bytes | bytearray | memoryview
Body = Buffer | Path | Iterable[Buffer]


def _chunks(body: Body) -> Iterator[Buffer]:
    if isinstance(body, Path):
        with body.open("rb") as file:
            while chunk := file.read(PART):
                yield chunk
    elif isinstance(body, bytes | bytearray | memoryview):
        yield body
    else:
        yield from body


def write_file(path: Path, body: Body, create: bool) -> None:
    with StagedFile(path) as staged:
        for chunk in _chunks(body):
            staged.write(chunk)
        staged.commit(create)
