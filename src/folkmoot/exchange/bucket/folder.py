"""Write a file so that its name never shows anything but the whole content.

The bytes go to a staging file beside it, which is synced, then renamed (or linked, when the
name must be new), then the folder is synced: after `commit` returns the file survives a
power cut; before, nobody sees it. obstore's own folder store renames too, but never syncs.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

PART = 8 << 20
"""Bytes moved at once, and a multipart upload's part: 10,000 parts make 80 GB."""
T = TypeVar("T")
Buffer = bytes | bytearray | memoryview
Body = Buffer | Path | Iterable[Buffer]
AsyncBody = Body | AsyncIterable[Buffer]


class StagedFile:
    """`with StagedFile(path) as staged: staged.write(...); staged.commit()`.

    Leaving without a commit removes the staging file. Its name ends in `#` and digits, which
    obstore leaves out of listings, so one orphaned by a kill is never taken for an object.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.staging = path.with_name(f"{path.name}#{secrets.randbits(48)}")
        self._file = open(self.staging, "xb", buffering=0)  # noqa: SIM115

    def write(self, chunk: Buffer) -> None:
        rest = memoryview(chunk).cast("B")
        while rest:
            rest = rest[self._file.write(rest) :]

    def commit(self, create: bool = False) -> None:
        """Give the file its name. With `create`, FileExistsError if the name is taken."""
        os.fsync(self._file.fileno())
        if create:
            os.link(self.staging, self.path)
            self.staging.unlink()
        else:
            self.staging.replace(self.path)
        sync_folder(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        self.staging.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


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


async def write_file_async(path: Path, body: AsyncIterable[Buffer], create: bool) -> None:
    with await in_thread(StagedFile, path) as staged:
        async for chunk in body:
            await in_thread(staged.write, chunk)
        await in_thread(staged.commit, create)


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Like `asyncio.to_thread`, but a cancelled caller waits for the thread to be done.

    Otherwise the file would be closed, and its descriptor reused, under the thread's hands.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        raise
