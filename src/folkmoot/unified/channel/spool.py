"""What a channel holds, written down so that it outlives whoever holds it.

Entries are appended to one of two files, `spool.0` and `spool.1`; when it has grown, what is still
held is written to the other and that one goes on. Both are written over again and again, so their
pages stay in memory and the disk sees little of them.

    file    MAGIC, nonce, generation, boot id
    entry   lengths of header and body, nonce | header | body | nonce

A write is there for everyone as soon as it has returned, so what was written survives the death of
every process. It is not synced: after a power cut or a restart of the machine the files are
refused, since nobody knows what of them had reached the disk. A death in the middle of a write
leaves an entry without its last bytes, at the end: nobody acted on it. The nonce is new for every
generation, so an entry of an older one is never taken for one of this; and nothing that users send
can look like one.
"""

import os
import secrets
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from folkmoot.host.files import lock_file, write_all
from folkmoot.unified.channel.errors import SpoolError
from folkmoot.unified.job_addresses import boot_id

Buffer = bytes | bytearray | memoryview
MAGIC = b"FOLKMOOT CHANNEL 1\n"
NONCE = 16
_FILE = struct.Struct(f"<{len(MAGIC)}s{NONCE}sQ36s")
_HEAD = struct.Struct(f"<IQ{NONCE}s")
# The least to write before what is held is written anew, and how many times that size.
SMALLEST, GROWTH = 4 * 1024 * 1024, 4
MOST_PIECES = 1000  # that a system takes in one write
BEGUN = b"begun"


class SpoolEntry(NamedTuple):
    header: bytes
    body: bytes


class Spool:
    """One process holds a folder; a second one is refused."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._lock = _hold(folder)
        found = [_read(folder / f"spool.{number}") for number in (0, 1)]
        newest = max(found, key=lambda read: read.generation)
        #: What was written before, in order.
        self.entries = newest.entries
        self._generation = newest.generation
        self._active = found.index(newest)
        self._fds: dict[int, int] = {}
        self._nonce = b""
        self._at = self._limit = 0
        self._unwritten: list[Buffer] = []

    def begin(self, entries: Iterable[tuple[bytes, Sequence[Buffer]]]) -> None:
        """Go on in the other file, which holds these entries in place of all before."""
        self._active = 1 - self._active
        self._generation += 1
        self._nonce = secrets.token_bytes(NONCE)
        head = _FILE.pack(MAGIC, self._nonce, self._generation, boot_id().encode())
        self._at, self._unwritten = 0, [head]
        for header, body in entries:
            self.add(header, body)
        self.add(BEGUN)
        self.commit()
        self._limit = max(SMALLEST, GROWTH * self._at)

    @property
    def grown(self) -> bool:
        """Whether it is time to begin anew."""
        return self._at > self._limit

    def add(self, header: bytes, body: Sequence[Buffer] = ()) -> None:
        """An entry that is written with the next commit."""
        size = sum(map(len, body))
        head = _HEAD.pack(len(header), size, self._nonce)
        self._unwritten += [head + header, *body, self._nonce]

    def commit(self) -> None:
        """Write what was added; when this returns, it outlives this process."""
        pieces, self._unwritten = self._unwritten, []
        for at in range(0, len(pieces), MOST_PIECES):
            some = pieces[at : at + MOST_PIECES]
            size = sum(map(len, some))
            if os.pwritev(self._fd(), some, self._at) < size:
                write_all(
                    lambda rest, done: os.pwrite(self._fd(), rest, self._at + done), b"".join(some)
                )
            self._at += size

    def close(self) -> None:
        for fd in (*self._fds.values(), self._lock):
            os.close(fd)
        self._fds, self._lock = {}, -1

    def _fd(self) -> int:
        if self._active not in self._fds:
            path = self._folder / f"spool.{self._active}"
            self._fds[self._active] = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return self._fds[self._active]


class _Read(NamedTuple):
    generation: int
    entries: list[SpoolEntry]


def _read(path: Path) -> _Read:
    """What a file holds; nothing, if its beginning was never finished."""
    data = path.read_bytes() if path.exists() else b""
    if len(data) < _FILE.size:
        return _Read(0, [])
    magic, nonce, generation, boot = _FILE.unpack_from(data)
    if magic != MAGIC:
        raise SpoolError(f"{path} is not a channel's file: move it away, or use another folder")
    entries, end = _entries(data, nonce)
    if data.find(nonce, end + _HEAD.size) >= 0:
        raise SpoolError(f"{path} is damaged at byte {end}: move its folder away and begin again")
    begun = next((at for at, entry in enumerate(entries) if entry.header == BEGUN), None)
    if begun is None:
        return _Read(0, [])
    if boot.decode(errors="replace") != boot_id():
        raise SpoolError(
            f"{path} was written before this machine was restarted, so its end may be missing:"
            f" move {path.parent} away and begin again"
        )
    return _Read(generation, [*entries[:begun], *entries[begun + 1 :]])


def _entries(data: bytes, nonce: bytes) -> tuple[list[SpoolEntry], int]:
    """The whole entries, and where they end."""
    entries, at = [], _FILE.size
    while at + _HEAD.size <= len(data):
        length, size, seen = _HEAD.unpack_from(data, at)
        body = at + _HEAD.size + length
        end = body + size + NONCE
        if seen != nonce or data[end - NONCE : end] != nonce:
            break
        entries.append(SpoolEntry(data[at + _HEAD.size : body], data[body : body + size]))
        at = end
    return entries, at


def _hold(folder: Path) -> int:
    lock = lock_file(folder / "lock")
    if lock is None:
        raise SpoolError(f"{folder} is held by another process: stop it first")
    return lock
