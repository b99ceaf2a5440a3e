"""Updates on their way to a coordinator that carries weights itself.

A body is written into a private file as it comes, hashed, and looked through for what is not
finite. A line that breaks leaves what came; the sender's next line goes on there if it has the same
token. When all is there, the file gets its sender's id and its digest for a name, so what was
judged under a digest is what is combined, and another body of the same sender cannot take its
place. What is unfinished when the coordinator ends is dropped: its sender begins again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
from collections.abc import Callable, Collection
from math import inf
from pathlib import Path

from blake3 import blake3

from folkmoot.federated.model_file.arriving import ArrivingFloats
from folkmoot.federated.model_file.layout import Array, Layout, decode_header, header_length
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.model_file.writer import reopened
from folkmoot.federated.transfer.frames import Socket

ARRIVING = "#arriving"
TOKEN_BYTES = 16
#: Bytes after which readers of a body that comes are told of them.
STRETCH = 1 << 20
READ_ONLY = os.O_RDONLY | os.O_CLOEXEC


def arrived(spool: Path, key: str, digest: str) -> Path:
    """Where an update is whose whole body came: `<round>/<participant_id>#<digest>`."""
    return spool / f"{key}#{digest}"


class Uploads:
    """Every body that is on its way, one for each key."""

    def __init__(self, spool: Path, spares: Path) -> None:
        self._spool, self._spares = spool, spares
        self._open: dict[str, Upload] = {}
        #: The layouts of bodies that were seen to be finite as they came, by `<key>#<digest>`.
        self._finite: dict[str, Layout] = {}
        for path in spool.glob(f"*/*{ARRIVING}"):
            path.unlink()

    def begin(self, key: str, token: bytes, size: int, kept: Collection[str]) -> Upload:
        """The body of `size` bytes with this token, as far as it came; or a new one.

        A sender has one body at a time: others of its are given up, unless their digest is in
        `kept`.
        """
        known = self._open.get(key)
        if known is not None and (known.token, known.size) == (token, size) and not known.ended:
            return known
        if known is not None:
            known.drop()
        round_, _, id = key.partition("/")
        folder = self._spool / round_
        for name in _names_in(folder):
            if name.startswith(f"{id}#") and name.rpartition("#")[2] not in kept:
                (folder / name).unlink(missing_ok=True)
                self._finite.pop(f"{round_}/{name}", None)
        path = folder / f"{id}#{token.hex()}{ARRIVING}"
        upload = Upload(path, self._spool, key, token, size, self._spares / id, self._finite)
        self._open[key] = upload
        return upload

    def download(self, key: str, size: int) -> Upload:
        """A body that we read out of a bucket. Who reads it writes it, finishes or drops it."""
        round_, _, id = key.partition("/")
        folder = self._spool / round_
        folder.mkdir(exist_ok=True)
        token = secrets.token_bytes(TOKEN_BYTES)
        path = folder / f"{id}#{token.hex()}{ARRIVING}"
        return Upload(path, self._spool, key, token, size, self._spares / id, self._finite)

    def forget(self, last: int) -> None:
        """Give up what is on its way for rounds up to `last`."""
        for key in [key for key in self._open if int(key.partition("/")[0]) <= last]:
            self._open.pop(key).drop()
        for name in list(self._finite):  # a copy: other threads add to it
            if int(name.partition("/")[0]) <= last:
                self._finite.pop(name, None)

    def finite_layout(self, key: str, digest: str) -> Layout | None:
        """The layout of a body whose values are known to be finite; others may be all the same."""
        return self._finite.get(f"{key}#{digest}")

    def close(self) -> None:
        for upload in self._open.values():
            upload.drop()


def _names_in(folder: Path) -> list[str]:
    """What is in a folder, which is made if need be; `glob` takes ten times as long."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        return []


class Upload:
    """One body. Written by one thread at a time: the one whose line `hold` was called for."""

    def __init__(
        self,
        path: Path,
        spool: Path,
        key: str,
        token: bytes,
        size: int,
        spare: Path,
        finite: dict[str, Layout],
    ) -> None:
        self.path, self._spool, self._key = path, spool, key
        self.token, self.size, self.offset = token, size, 0
        self._hasher, self._lock = blake3(), threading.Lock()
        self._floats, self._finite = ArrivingFloats(size), finite
        self._line: Socket | None = None
        self.ended = self._dropped = False
        #: Of the whole body, once it is there.
        self.digest = ""
        #: For those who read it while it comes, and at which byte the first of them is told.
        self._came, self._tell_at = threading.Condition(), inf
        # A file of the same sender that is there already costs a fraction of a new one.
        self._fd = reopened(spare, path)
        if self._fd < 0:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def hold(self, line: Socket) -> bool:
        """Whether this line may go on with the body; one that is at it is cut, and ends soon."""
        with self._lock:
            if self._line is not None:
                cut(self._line)
            elif not self.ended and not self._dropped:
                self._line = line
                return True
            return False

    def release(self) -> None:
        with self._lock:
            self._line = None
            if self._dropped:
                self._discard()

    def drop(self) -> None:
        """Forget what came. Whoever is at it loses its line, and then closes the file."""
        with self._lock:
            self._dropped = True
            if self._line is not None:
                cut(self._line)
            else:
                self._discard()
        self.tell_readers()

    def write(self, piece: memoryview) -> None:
        done = 0
        while done < len(piece):
            done += os.pwrite(self._fd, piece[done:], self.offset + done)
        self._hasher.update(piece)
        self._floats.update(piece)
        self.offset += len(piece)
        if self.offset >= self._tell_at:
            self.tell_readers()

    def wait_for(self, end: int, given_up: Callable[[], bool]) -> None:
        """Until so many bytes are there; `OSError` when nobody sends or wants them any more."""
        # Who has to wait at all waits for a good deal: to be woken costs more than to read it.
        at = min(self.size, max(end, self.offset + STRETCH))
        with self._came:
            while True:
                # Asked for before we look: the writer, who takes no lock, looks after it wrote.
                self._tell_at = min(self._tell_at, at)
                if self.offset >= at or self._dropped or given_up():
                    break
                self._came.wait()
        if self.offset < end or given_up():
            raise OSError(f"{self._key} was given up before all of it came")

    def tell_readers(self) -> None:
        with self._came:
            self._tell_at = inf
            self._came.notify_all()

    def open(self) -> int:
        """Another descriptor of its file, wherever that has got to."""
        with self._lock:
            if self.ended:
                return os.open(arrived(self._spool, self._key, self.digest), READ_ONLY)
            return os.open(self.path, READ_ONLY)

    def hexdigest(self) -> str:
        """Of what came so far."""
        digest: str = self._hasher.hexdigest()
        return digest

    def finish(self) -> None:
        """Give the whole body the name that its digest makes."""
        os.ftruncate(self._fd, self.size)
        self.digest = self.hexdigest()
        path = arrived(self._spool, self._key, self.digest)
        os.replace(self.path, path)
        if self._floats.finite:
            self._finite[f"{self._key}#{self.digest}"] = self._floats.layout
        os.close(self._fd)
        self.ended = True

    def _discard(self) -> None:
        if not self.ended:
            os.close(self._fd)
            self.path.unlink(missing_ok=True)
            self.ended = True


class ArrivingModel(ModelFile):
    """A model that still comes: who reads waits for what is missing, or until `given_up`."""

    def __init__(self, upload: Upload, given_up: Callable[[], bool]) -> None:
        self.path, self.nbytes = upload.path, upload.size
        self._upload, self._given_up = upload, given_up
        self._fd = upload.open()
        try:
            self._wait_for(8)
            end = 8 + header_length(os.pread(self._fd, 8, 0), self.nbytes)
            self._wait_for(end)
            self.head = os.pread(self._fd, end, 0)
            self.layout, self.offsets = decode_header(self.head, self.nbytes)
        except BaseException:
            self.close()
            raise

    def _wait_for(self, end: int) -> None:
        if self._upload.offset < end or self._given_up():
            self._upload.wait_for(end, self._given_up)

    def read(self, name: str, start: int, out: Array) -> None:
        self._wait_for(self.offsets[name] + (start + out.size) * out.itemsize)
        super().read(name, start, out)


def cut(line: Socket) -> None:
    """Wake whoever waits for the line: there is nothing to wait for."""
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was cut before
