"""An append-only journal: what is in it happened, whatever happens next.

- `append` returns when the record is on the disk (fdatasync in a file filled beforehand, so that
  the disk has no metadata to write: ten times cheaper than growing a file).
- A last record that was cut off by a crash is forgotten: nobody acted on it. Its file is kept all
  the same. Everything else that cannot be read is an error: no record is given up (the bytes, and
  how the two are told apart, are in `journal_format`).
- One process holds a journal; a second one is refused. Every holder has an `epoch` of its own,
  larger than all before it, and writes to a file of that number, which it `begin`s with what it
  made of the records it found.
- A holder that hangs can be replaced (`take_over`). Its successor claims the next epoch before it
  reads; the old one looks for a successor after every write. So a record that the old holder acted
  on was there to be read, and once it was fenced off it acts on nothing.
"""

import logging
import os
import re
from pathlib import Path

from folkmoot.core.user_error import UserError
from folkmoot.host.files import lock_file, naming, sync_folder, write_all
from folkmoot.host.journal_format import Contents, Damaged, Frames, filled, new_file, read_file

logger = logging.getLogger(__name__)


class JournalError(UserError):
    """The journal cannot be used; the message says why and what to do."""


class Fenced(JournalError):
    """Another process holds the journal now: nothing we decide counts any more."""


class Journal:
    """`path` is the beginning of its files' names: `path.00000001`, `path.lock`."""

    #: Only what may be begun again, as a simulation, does without.
    synced = True

    def __init__(self, path: str | os.PathLike[str], *, take_over: bool = False) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = -1
        self._filled = self._reached = 0  # bytes of zeros or more, and how far writes ever came
        self._frames: Frames
        #: Bytes in use, and how many it began with.
        self.size = self.begun = 0
        self._lock = self._hold(take_over)
        try:
            older = self._files()
            self.epoch = max(older, default=0) + 1
            #: Where this holder writes.
            self.file = self._file(self.epoch)
            self._claim()
            #: The records of the last holder.
            self.records, self._cut_off = _read(older)
        except BaseException:
            self.close()
            raise

    def begin(self, *records: bytes) -> None:
        """Start a new file with these records in place of all before; durable on return."""
        frames, body = new_file(records)
        size = filled(len(body))
        partial = self.file.with_name(f"{self.file.name}.part")
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            with naming(partial):
                write_all(lambda rest, _: os.write(fd, rest), body + bytes(size - len(body)))
                os.fsync(fd)
            self._refuse_if_fenced()
            os.replace(partial, self.file)
        except BaseException:
            os.close(fd)
            raise
        sync_folder(self.path.parent)
        if self._fd >= 0:
            os.close(self._fd)
        self._fd, self._filled, self._frames = fd, size, frames
        self.size = self.begun = self._reached = len(body)
        self.records = []
        self._remove_older()

    def append(self, record: bytes) -> None:
        """Add one record; durable on return. Raises `Fenced` when it counts for nothing."""
        frame = self._frames.frame(record, self.size)
        end = self.size + len(frame)
        with naming(self.file):
            self._write(frame, end)
        self._refuse_if_fenced()
        self._frames.kept(record)
        self.size = self._reached = end

    def _write(self, frame: bytes, end: int) -> None:
        if end > self._filled:
            self._fill(end)
        # Zeros over the rest of one that could not be written before it.
        frame = frame.ljust(self._reached - self.size, b"\0")
        self._reached = max(self._reached, end)
        write_all(lambda rest, done: os.pwrite(self._fd, rest, self.size + done), frame)
        if self.synced:
            os.fdatasync(self._fd)

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
        if (fd := lock_file(path)) is None:
            raise JournalError(
                f"{self.path} is in use by another coordinator: stop it, or use another folder"
            )
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
        start, target = self._filled, filled(needed)
        write_all(lambda rest, done: os.pwrite(self._fd, rest, start + done), bytes(target - start))
        os.fsync(self._fd)
        self._filled = target

    def _remove_older(self) -> None:
        for epoch, file in self._files().items():
            if file == self._cut_off:
                file.rename(file.with_name(f"{file.name}.cut"))
            elif epoch < self.epoch:
                file.unlink(missing_ok=True)


def _read(files: dict[int, Path]) -> tuple[list[bytes], Path | None]:
    """The records of the newest holder that began, and its file if a record was cut off there.

    One that only claimed its epoch wrote none.
    """
    for _, path in sorted(files.items(), reverse=True):
        if data := path.read_bytes():
            written = _parse(data, path)
            if not written.cut:
                return written.records, None
            logger.warning(
                "%s ends in a record that a crash cut off at byte %d: nobody acted on it, and it is"
                " left out; the file is kept as %s.cut",
                *(path, written.end, path.name),
            )
            return written.records, path
    return [], None


def _parse(data: bytes, path: Path) -> Contents:
    try:
        return read_file(data)
    except Damaged as error:
        raise JournalError(
            f"{path} cannot be used: {error}. Nothing was changed. Restore it from a copy, or move"
            " its folder away and begin again"
        ) from None
