"""An append-only journal: what is in it happened, whatever happens next.

- `append` returns when the record is on the disk (fdatasync in a file filled beforehand, so that
  the disk has no metadata to write: ten times cheaper than growing a file).
- A record is its length, a CRC-32 that continues the one before, and its bytes. A last record that
  was cut off by a crash is forgotten: nobody acted on it. Damage anywhere else is an error.
- One process holds a journal; a second one is refused. Every holder has an `epoch` of its own,
  larger than all before it, and writes to a file of that number, which it `begin`s with what it
  made of the records it found.
- A holder that hangs can be replaced (`take_over`). Its successor claims the next epoch before it
  reads; the old one looks for a successor after every write. So a record that the old holder acted
  on was there to be read, and once it was fenced off it acts on nothing.
"""

import fcntl
import os
import re
import zlib
from pathlib import Path

from folkmoot.host.files import sync_folder

MAGIC = b"FOLKMOOT JOURNAL 2\n"
CHUNK = 256 * 1024
MAX_RECORD = 64 * 1024 * 1024


class JournalError(Exception):
    """The journal cannot be used; the message says why and what to do."""


class Fenced(JournalError):
    """Another process holds the journal now: nothing we decide counts any more."""


class Journal:
    """`path` is the beginning of its files' names: `path.00000001`, `path.lock`."""

    def __init__(self, path: str | os.PathLike[str], *, take_over: bool = False) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = -1
        self._position = self._filled = self._crc = 0
        #: The size it began with.
        self.begun = 0
        self._lock = self._hold(take_over)
        try:
            older = self._files()
            self.epoch = max(older, default=0) + 1
            self._claim()
            #: The records of the last holder.
            self.records = _read(older)
        except BaseException:
            self.close()
            raise

    @property
    def file(self) -> Path:
        """Where this holder writes."""
        return self._file(self.epoch)

    @property
    def size(self) -> int:
        """Bytes in use."""
        return self._position

    def begin(self, *records: bytes) -> None:
        """Start a new file with these records in place of all before; durable on return."""
        body, crc = bytearray(MAGIC), 0
        for record in records:
            frame, crc = _frame(record, crc)
            body += frame
        size = -(-(len(body) + CHUNK) // CHUNK) * CHUNK
        partial = self.file.with_name(f"{self.file.name}.part")
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        os.write(fd, bytes(body) + bytes(size - len(body)))
        os.fsync(fd)
        self._refuse_if_fenced()
        os.replace(partial, self.file)
        sync_folder(self.path.parent)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._filled, self._position, self._crc = fd, size, len(body), crc
        self.begun, self.records = len(body), []
        for epoch, file in self._files().items():
            if epoch < self.epoch:
                file.unlink(missing_ok=True)

    def append(self, record: bytes) -> None:
        """Add one record; durable on return. Raises `Fenced` when it counts for nothing."""
        frame, crc = _frame(record, self._crc)
        if self._position + len(frame) > self._filled:
            self._fill(self._position + len(frame))
        os.pwrite(self._fd, frame, self._position)
        os.fdatasync(self._fd)
        self._refuse_if_fenced()
        self._position += len(frame)
        self._crc = crc

    def close(self) -> None:
        for fd in (self._fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self._fd = self._lock = -1

    def _file(self, epoch: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{epoch:08}")

    def _files(self) -> dict[int, Path]:
        """Every file of this journal, by epoch."""
        name = re.compile(re.escape(self.path.name) + r"\.(\d{8,})")
        found = ((name.fullmatch(p.name), p) for p in self.path.parent.iterdir())
        return {int(match[1]): path for match, path in found if match}

    def _hold(self, take_over: bool) -> int:
        path = self.path.with_name(f"{self.path.name}.lock")
        if take_over:
            # The one who hangs keeps its lock on a file that has no name any more.
            path.unlink(missing_ok=True)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise JournalError(
                f"{self.path} is in use by another coordinator: stop it, or use another folder"
            ) from None
        return fd

    def _claim(self) -> None:
        try:
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
        except FileExistsError:
            raise JournalError(f"{self.path} is just being taken over by another") from None

    def _refuse_if_fenced(self) -> None:
        unlinked = self._fd >= 0 and os.fstat(self._fd).st_nlink == 0
        if unlinked or self._file(self.epoch + 1).exists():
            raise Fenced(f"{self.path} was taken over by another process: end this one")

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


def _read(files: dict[int, Path]) -> list[bytes]:
    """The records of the newest holder that began; one that only claimed its epoch wrote none."""
    for _, path in sorted(files.items(), reverse=True):
        if data := path.read_bytes():
            if not data.startswith(MAGIC):
                raise JournalError(f"{path} is not a journal of Folkmoot's")
            return _parse(data, path)
    return []


def _parse(data: bytes, path: Path) -> list[bytes]:
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
    return records
