"""Write a file so that its name never shows anything but the whole content.

The bytes go to a staging file beside it, which is synced, then renamed (or linked, when the name
must be new), then the folder is synced: after `commit` returns the file survives a power cut;
before, nobody sees it.
"""

import os
import secrets
from pathlib import Path
from typing import Self


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

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        rest = memoryview(chunk).cast("B")
        while rest:
            rest = rest[self._file.write(rest) :]

    def commit(self, create: bool = False, durable: bool = True) -> None:
        """Give the file its name. With `create`, FileExistsError if the name is taken.

        What is not `durable` may be gone after a power cut.
        """
        if durable:
            os.fsync(self._file.fileno())
        if create:
            os.link(self.staging, self.path)
            self.staging.unlink()
        else:
            self.staging.replace(self.path)
        if durable:
            sync_folder(self.path.parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._file.close()
        self.staging.unlink(missing_ok=True)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a small file at once, and on disk before what follows."""
    with StagedFile(path) as staged:
        staged.write(content)
        staged.commit()


def sync_folder(folder: Path) -> None:
    """Make a rename in `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
