"""An append-only journal: what is in it happened, whatever happens next.

- `append` returns when the record is on the disk (fdatasync in a file filled beforehand, so that
  the disk has no metadata to write: ten times cheaper than growing a file).
- A record is its length, a CRC-32 that continues the one before, and its bytes. A last record that
  was cut off by a crash is forgotten: nobody acted on it. Damage anywhere else is an error.
- `compact` puts one record in place of all, in a new file that takes the old one's name at once.
- One process holds a journal; a second one is refused.
"""

import fcntl
import os
import zlib
from pathlib import Path

from folkmoot.host.files import sync_folder

MAGIC = b"FOLKMOOT JOURNAL 1\n"
CHUNK = 256 * 1024
MAX_RECORD = 64 * 1024 * 1024


class JournalError(Exception):
    """The journal cannot be used; the message says why and what to do."""


class Journal:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = self._hold(self.path.with_suffix(".lock"))
        self._fd = -1
        self._position = self._filled = self._crc = 0
        #: The records that were there when the journal was opened.
        self.records: list[bytes] = []
        try:
            if self.path.exists():
                self._open()
            else:
                self._replace([])
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._position

    def append(self, record: bytes) -> None:
        """Add one record; durable on return."""
        frame, crc = _frame(record, self._crc)
        if self._position + len(frame) > self._filled:
            self._fill(self._position + len(frame))
        os.pwrite(self._fd, frame, self._position)
        os.fdatasync(self._fd)
        self._position += len(frame)
        self._crc = crc

    def compact(self, record: bytes) -> None:
        """Forget every record but this one; durable on return."""
        self._replace([record])

    def close(self) -> None:
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def _hold(self, path: Path) -> int:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise JournalError(
                f"{self.path} is in use by another coordinator: stop it, or use another folder"
            ) from None
        return fd

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        data = self.path.read_bytes()
        if not data.startswith(MAGIC):
            raise JournalError(f"{self.path} is not a journal of Folkmoot's")
        self._filled = len(data)
        self.records, self._position, self._crc = _parse(data, self.path)
        if any(data[self._position :]):
            # A cut-off record: wipe it, or its remains would follow the next one.
            os.pwrite(self._fd, bytes(len(data) - self._position), self._position)
            os.fdatasync(self._fd)

    def _replace(self, records: list[bytes]) -> None:
        body, crc = bytearray(MAGIC), 0
        for record in records:
            frame, crc = _frame(record, crc)
            body += frame
        size = -(-(len(body) + CHUNK) // CHUNK) * CHUNK
        partial = self.path.with_suffix(".part")
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.write(fd, bytes(body) + bytes(size - len(body)))
        os.fsync(fd)
        os.replace(partial, self.path)
        sync_folder(self.path.parent)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._filled, self._position, self._crc = fd, size, len(body), crc

    def _fill(self, needed: int) -> None:
        target = -(-(needed + CHUNK) // CHUNK) * CHUNK
        os.pwrite(self._fd, bytes(target - self._filled), self._filled)
        os.fsync(self._fd)
        self._filled = target


def _frame(record: bytes, crc: int) -> tuple[bytes, int]:
    if not 0 < len(record) <= MAX_RECORD:
        raise ValueError(f"a record of {len(record)} bytes; expected 1 to {MAX_RECORD}")
    crc = zlib.crc32(record, crc)
    return len(record).to_bytes(4, "little") + crc.to_bytes(4, "little") + record, crc


def _parse(data: bytes, path: Path) -> tuple[list[bytes], int, int]:
    records, position, crc = [], len(MAGIC), 0
    while length := int.from_bytes(data[position : position + 4], "little"):
        end = position + 8 + length
        record = data[position + 8 : end]
        new_crc = zlib.crc32(record, crc)
        if length > MAX_RECORD or new_crc != int.from_bytes(
            data[position + 4 : position + 8], "little"
        ):
            if length <= MAX_RECORD and any(data[end:]):
                raise JournalError(
                    f"{path} is damaged at byte {position}, and more follows: restore it from a "
                    "copy, or begin again with an empty state folder"
                )
            break
        records.append(record)
        position, crc = end, new_crc
    return records, position, crc
