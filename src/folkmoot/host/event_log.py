"""Event logs: what a process did, one JSON object a line, for people and programs that watch.

A line has `time` (whole milliseconds since 1970), `type`, and the fields of its record; bytes are
hex digits. Each line is handed to the system at once.

- Writing never fails: a full disk must not stop a run or a round. The first record that cannot be
  written is warned of, all are counted; when there is room again, `EventsMissed` says how many.
- `LogReader` gives the records back as the types they were. It follows a file that grows, waits
  for the end of a line that is being written, keeps what it does not know as `Unknown`, and counts
  lines that cannot be read.
"""

import errno
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import msgspec

from folkmoot.core.machine import Effect
from folkmoot.host.clock import wall_clock

logger = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Record(msgspec.Struct, frozen=True, tag_field="type", tag=True):
    """Anything that a shell writes into its log, beside the effects of its machine."""


class EventsMissed(Record, frozen=True, tag=True):
    """So many records could not be written before this line."""

    count: int


class Unknown(msgspec.Struct, frozen=True):
    """A line of a type that the reader was not told of."""

    type: str
    fields: dict[str, Any]


class EventLog:
    """Appends to a file. With None, and once closed, it writes nothing."""

    def __init__(self, path: Path | None, clock: Callable[[], int] = wall_clock) -> None:
        self._path, self._clock = path, clock
        self._fd = -1
        self._torn = False  # the file may end in a part of a line
        self.missed = 0  # records that could not be written since the last one that could
        #: Hears of every record, also where no file is written.
        self.listener: Callable[[Record | Effect], None] = lambda record: None

    def write(self, record: Record | Effect) -> None:
        self.listener(record)
        if self._path is None:
            return
        lines = self._line(record)
        if self.missed:
            lines = self._line(EventsMissed(self.missed)) + lines
        try:
            self._append(lines)
            self.missed = 0
        except OSError as error:
            if not self.missed:
                logger.warning("%s cannot be written, and misses events: %s", self._path, error)
            self.missed += 1

    def close(self) -> None:
        self._path = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _line(self, record: Record | Effect) -> bytes:
        fields = msgspec.to_builtins(record, builtin_types=(bytes,))
        for name, value in fields.items():
            if isinstance(value, bytes):
                fields[name] = value.hex()
        return _encode({"time": self._clock(), **fields}) + b"\n"

    def _append(self, lines: bytes) -> None:
        if self._fd < 0:
            self._open()
        lines = b"\n" + lines if self._torn else lines
        written = os.write(self._fd, lines)
        self._torn = written < len(lines)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self) -> None:
        assert self._path is not None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o644)
        # A process that was killed, or ran out of room, may have left a part of a line.
        size = os.fstat(self._fd).st_size
        self._torn = size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"


class LoggedRecord(NamedTuple):
    time: int  # milliseconds since 1970
    record: msgspec.Struct


class LogReader:
    """Reads a log as it grows, into records of `types`."""

    def __init__(self, path: Path, types: Iterable[type[msgspec.Struct]]) -> None:
        self.path = path
        self.damaged = 0  # lines that could not be read
        known: list[type[msgspec.Struct]] = [EventsMissed, *types]
        self._types = {type_.__struct_config__.tag: type_ for type_ in known}
        self._position = 0
        self._rest = b""

    def new(self) -> Iterator[LoggedRecord]:
        """What was written since the last call."""
        data = self._read()  # may begin anew, with no rest
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in filter(None, lines):
            try:
                yield self._entry(_decode(line))
            except (msgspec.DecodeError, ValueError, KeyError, TypeError, RecursionError):
                self.damaged += 1

    def _read(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                if os.fstat(file.fileno()).st_size < self._position:
                    self._position, self._rest = 0, b""  # another file took its name
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return b""
        self._position += len(data)
        return data

    def _entry(self, fields: dict[str, Any]) -> LoggedRecord:
        time, tag = fields.pop("time"), fields["type"]
        if type(time) is not int or type(tag) is not str:
            raise TypeError("time is not whole milliseconds, or type no name")
        known = self._types.get(tag)
        if known is None:
            del fields["type"]
            return LoggedRecord(time, Unknown(tag, fields))
        for field in msgspec.structs.fields(known):
            value = fields.get(field.encode_name)
            if field.type is bytes and isinstance(value, str):
                fields[field.encode_name] = bytes.fromhex(value)
            elif field.type is float and value is None and field.encode_name in fields:
                fields[field.encode_name] = math.nan  # JSON has no other way to write it
        return LoggedRecord(time, msgspec.convert(fields, known))


def records_in(*modules: ModuleType) -> list[type[msgspec.Struct]]:
    """Every type of these modules that goes into a log: for a `LogReader`."""
    return [
        found
        for module in modules
        for found in vars(module).values()
        if isinstance(found, type) and issubclass(found, Record | Effect)
    ]
