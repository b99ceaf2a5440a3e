"""The bytes of a journal's file, and what a crash can have done to them.

    MAGIC | nonce | bytes it began with | CRC-32 of these two
    record: length | CRC-32 of nonce, place and length | CRC-32 of all records so far | bytes | END

A file comes into being whole, with the records it began with, and goes on in space that was filled
with zeros and synced beforehand. So a crash leaves one record at most in pieces, the last one, and
what did not reach the disk of it is zeros: from some byte on, or in whole sectors. That, and only
that, is a cut-off end: nobody acted on it. All else is damage, and an error.

A record's head names its place under the file's nonce. So a record that lies behind damage is found
wherever it begins, and nobody who has bytes of theirs recorded can make them look like one.
"""

import secrets
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAGIC = b"FOLKMOOT JOURNAL 3\n"
CHUNK = 256 * 1024
MAX_RECORD = 64 * 1024 * 1024
# What a disk writes whole or not at all.
SECTOR = 512
END = b"\n"
_FILE = struct.Struct("<16sQ")
_HEAD = struct.Struct("<III")
_PLACE = struct.Struct("<QI")
START = len(MAGIC) + _FILE.size + 4


class Damaged(Exception):
    """The message says where, and what is wrong there."""


class Contents(NamedTuple):
    """What a file holds: its records, where they end, and whether one more was cut off there."""

    records: list[bytes]
    end: int
    cut: bool


class Frames:
    """Makes records into bytes, one after the other."""

    overhead = _HEAD.size + len(END)  # bytes beside those of a record

    def __init__(self, nonce: bytes) -> None:
        self._seed = self._crc = zlib.crc32(nonce)

    def frame(self, record: bytes, place: int) -> bytes:
        """The bytes of the record at `place`; the next one continues what is `kept`."""
        if not 0 < len(record) <= MAX_RECORD:
            raise ValueError(f"a record of {len(record)} bytes; expected 1 to {MAX_RECORD}")
        head = _HEAD.pack(len(record), self.check(place, len(record)), self._after(record))
        return head + record + END

    def check(self, place: int, length: int) -> int:
        return zlib.crc32(_PLACE.pack(place, length), self._seed)

    def kept(self, record: bytes) -> None:
        self._crc = self._after(record)

    def _after(self, record: bytes) -> int:
        return zlib.crc32(record, self._crc)


def new_file(records: Iterable[bytes]) -> tuple[Frames, bytes]:
    """A file that begins with these records, without the zeros after them."""
    nonce = secrets.token_bytes(16)
    frames, body = Frames(nonce), bytearray(START)
    for record in records:
        body += frames.frame(record, len(body))
        frames.kept(record)
    header = _FILE.pack(nonce, len(body))
    body[:START] = MAGIC + header + zlib.crc32(header).to_bytes(4, "little")
    return frames, bytes(body)


def filled(size: int) -> int:
    """How large a file is made that must hold `size` bytes."""
    return -(-(size + CHUNK) // CHUNK) * CHUNK


def read_file(data: bytes) -> Contents:
    """Raises `Damaged`, also when it is no journal at all."""
    if not data.startswith(MAGIC):
        raise Damaged("it is not a journal of this version of Folkmoot's")
    header = data[len(MAGIC) : START]
    if len(header) < _FILE.size + 4 or zlib.crc32(header[:-4]).to_bytes(4, "little") != header[-4:]:
        raise Damaged("its first bytes are damaged")
    nonce, begun = _FILE.unpack(header[:-4])
    frames, records, place = Frames(nonce), [], START
    while (record := _record(frames, data, place)) is not None:
        frames.kept(record)
        records.append(record)
        place += len(record) + Frames.overhead
    last = len(data.rstrip(b"\0"))
    if place < begun:
        raise Damaged(f"it is damaged at byte {place}, among the {begun} that it began with")
    # Space is added in whole chunks, and synced before it is used.
    if place > len(data) // CHUNK * CHUNK:
        raise Damaged(f"it was cut short to {len(data)} bytes")
    if last > place:
        _refuse_damage(frames, data, place, last)
    return Contents(records, place, cut=last > place)


def _record(frames: Frames, data: bytes, place: int) -> bytes | None:
    """The whole record at `place`, if there is one."""
    end = _end(frames, data, place)
    if end is None:
        return None
    record = data[place + _HEAD.size : end - len(END)]
    return record if data[place:end] == frames.frame(record, place) else None


def _end(frames: Frames, data: bytes, place: int) -> int | None:
    """Where the record whose head is at `place` ends; None when there is no head."""
    if place + _HEAD.size > len(data):
        return None
    length, check, _ = _HEAD.unpack_from(data, place)
    if not 0 < length <= MAX_RECORD or check != frames.check(place, length):
        return None
    return int(place + length + Frames.overhead)


def _refuse_damage(frames: Frames, data: bytes, place: int, last: int) -> None:
    """Return only when a crash explains the bytes from `place` to `last`."""
    end, head = _end(frames, data, place), place + _HEAD.size
    if end is None:
        if last > head and not _lacks_a_sector(data, place, head):
            raise Damaged(f"it is damaged at byte {place}, where a record should begin")
        more = any(_end(frames, data, later) is not None for later in range(head, last))
    else:
        if end > len(data):
            raise Damaged(f"it was cut short to {len(data)} bytes, amid the record at {place}")
        if last == end and not _lacks_a_sector(data, place, end):
            raise Damaged(f"it is damaged in the record at byte {place}")
        more = last > end
    if more or last > place + MAX_RECORD + Frames.overhead:
        raise Damaged(f"it is damaged at byte {place}, and more follows")


def _lacks_a_sector(data: bytes, start: int, end: int) -> bool:
    return any(not any(part) for part in _sectors(data, start, end))


def _sectors(data: bytes, start: int, end: int) -> Iterator[bytes]:
    while start < end:
        stop = min((start // SECTOR + 1) * SECTOR, end)
        yield data[start:stop]
        start = stop
