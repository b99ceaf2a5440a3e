"""Write a file so that its name never shows anything but the whole content; say which file failed.

The bytes go to a staging file beside it, which is synced, then renamed (or linked, when the name
must be new), then the folder is synced: after `commit` returns the file survives a power cut;
before, nobody sees it.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self


class StagedFile:
    """`with StagedFile(path) as staged: staged.write(...); staged.commit()`.

    Leaving without a commit removes the staging file. Its name ends in `#` and digits, which
    obstore leaves out of listings, so one orphaned by a kill is never taken for an object.
    """

    def __init__(self, path: Path, reopen: Callable[[Path], int] | None = None) -> None:
        """`reopen` gives a file to write over, under this name, or -1: its pages are ready."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.staging = path.with_name(f"{path.name}#{secrets.randbits(48)}")
        fd = reopen(self.staging) if reopen is not None else -1
        self._reopened = fd >= 0
        if self._reopened:
            self._file = open(fd, "r+b", buffering=0)  # noqa: SIM115
        else:
            self._file = open(self.staging, "xb", buffering=0)  # noqa: SIM115

    def write(self, chunk: bytes | bytearray | memoryview) -> None:
        rest = memoryview(chunk).cast("B")
        with naming(self.path):
            while rest:
                rest = rest[self._file.write(rest) :]

    def commit(self, create: bool = False, durable: bool = True) -> None:
        """Give the file its name. With `create`, FileExistsError if the name is taken.

        What is not `durable` may be gone after a power cut.
        """
        if self._reopened:  # what was written over may have been longer
            self._file.truncate()
        if durable:
            with naming(self.path):
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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """An error of the system says which file it is about: a full disk by itself does not."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def read_text(path: str | os.PathLike[str]) -> str:
    """A file of UTF-8, whatever the locale; ValueError says where it is not."""
    try:
        return Path(path).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{os.fspath(path)}: byte {error.start} is not UTF-8 text ({error.reason}); save the"
            " file as UTF-8"
        ) from None


def lock_file(path: Path) -> int | None:
    """Hold a file against other processes of this machine; None when one holds it.

    Until the descriptor is closed. The system does so when the process ends, however it does.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


@contextmanager
def held_alone(path: Path, sentence: str) -> Iterator[None]:
    """Hold a file while the block lasts; ValueError when another process holds it."""
    handle = lock_file(path)
    if handle is None:
        raise ValueError(sentence)
    try:
        yield
    finally:
        os.close(handle)


def write_all(write: Callable[[memoryview, int], int], data: bytes) -> None:
    """A disk that is nearly full takes a part; the next try says what is wrong."""
    done = 0
    while done < len(data):
        done += write(memoryview(data)[done:], done)


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
