"""One bucket behind one URL: S3, Google Cloud, Azure, a folder, memory, or read-only HTTP.

    s3://bucket/prefix   gs://bucket/prefix   az://container/prefix
    file:///folder or a plain path            memory:             https://host/prefix

Credentials come from the environment the way each vendor's tools read them (for S3:
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL …) or from `options`.

Promises: a key shows a whole object or none, however a writer dies; `put(create=True)` lets
exactly one writer win; nothing larger than the caller's limit is read into memory; every
failure is a BucketError that says which object and what to do. It is safe to call from many
threads.
"""

import contextlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
import numpy as np
import obstore
from obstore.store import AzureStore, GCSStore, HTTPStore, MemoryStore, S3Store

from folkmoot.exchange.bucket.backend import folder_of, open_store
from folkmoot.exchange.bucket.direct import NotGiven, direct
from folkmoot.exchange.bucket.errors import (
    BucketError,
    Missing,
    NotPossible,
    TooLarge,
    TooShort,
    translated,
)
from folkmoot.exchange.bucket.folder import (
    PART,
    Body,
    Buffer,
    write_file,
)
from folkmoot.exchange.bucket.keys import checked_key, checked_prefix, checked_range
from folkmoot.exchange.bucket.reading import (
    Reading,
    Room,
    no_room,
    read_direct,
    read_in_parts,
    read_whole,
)
from folkmoot.exchange.bucket.retry import retry_broken_off

NEAR = 64 << 10
"""Ranges at most this far apart are cheaper to read through than to ask for twice."""
IN_PARTS = (S3Store, GCSStore, AzureStore)
"""Stores from which a large object is read in parts, side by side."""
WHOLE = 64 << 20
"""At most so many bytes are sent in one request, a file's out of its mapping; more go in parts."""


class ObjectInfo(msgspec.Struct, frozen=True):
    key: str
    size: int


class Hasher(Protocol):
    def reset(self) -> object: ...

    def update(self, data: memoryview, /) -> object: ...


Listing = list[ObjectInfo]
Ranges = list[memoryview]


class Bucket:
    """`patience`: seconds a failing or stalled store is retried before it is an error."""

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, patience: float = 60.0
    ) -> None:
        self.url = url
        self.folder = folder_of(url)
        known = dict(options or {})
        self._store = open_store(url, self.folder, known, patience)
        self._direct = direct(self._store, known, patience)
        #: Whether the last object read was one for many connections: the next is often of its size.
        self._large = True

    @retry_broken_off
    def get(self, key: str, limit: int, hasher: Hasher | None = None) -> memoryview:
        """The whole object, if it has at most `limit` bytes; `hasher` has seen all of it then."""
        with translated(self.url, key):
            whole = _Whole(hasher)
            return whole.filled(self._read(key, limit, room=whole.room).pieces)

    def stream(self, key: str, limit: int, chunk: int = PART) -> Iterator[bytes]:
        """The object in pieces of about `chunk` bytes or less, for what should not be in memory."""
        yield from map(bytes, self.read(key, limit, chunk).pieces)

    def read(self, key: str, limit: int, chunk: int = PART) -> Reading:
        """The object's size, and its pieces as `stream` gives them, but without a copy."""
        with translated(self.url, key):
            if self.folder is not None:
                size, pieces = _read_file(self.folder / checked_key(self.url, key), chunk)
                self._bound(key, size, limit)
            else:
                size, pieces = self._read(key, limit, chunk)
        return Reading(size, self._translated(key, pieces))

    def _read(self, key: str, limit: int, chunk: int = PART, room: Room = no_room) -> Reading:
        checked_key(self.url, key)

        def bounded(size: int) -> memoryview | None:
            self._bound(key, size, limit)
            return room(size)

        if self._direct is not None and chunk >= PART:
            with contextlib.suppress(NotGiven):
                return read_direct(self._direct, self.url, key, bounded)
        if isinstance(self._store, IN_PARTS) and self._large and chunk >= PART:
            found = read_in_parts(self._store, self.url, key)
        else:
            found = read_whole(self._store, key, chunk)
        bounded(found.size)
        self._large = found.size > PART
        return found

    def _translated(self, key: str, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        with translated(self.url, key):
            yield from pieces

    @retry_broken_off
    def get_range(self, key: str, start: int, length: int) -> memoryview:
        """Exactly `length` bytes from `start`; TooShort when the object ends before."""
        checked_range(self.url, key, start, length)
        try:
            with translated(self.url, key):
                found = obstore.get_range(self._store, key, start=start, length=length)
        except BucketError as error:
            if type(error) is BucketError and (size := self.size(key)) < start + length:
                raise self._too_short(key, start, length, size) from error
            raise
        if len(found) != length:
            raise self._too_short(key, start, length, start + len(found))
        return memoryview(found)

    @retry_broken_off
    def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> Ranges:
        """Several (start, length) ranges: near ones in one request, far ones side by side."""
        for start, length in ranges:
            checked_range(self.url, key, start, length)
        starts, lengths = [start for start, _ in ranges], [length for _, length in ranges]
        with translated(self.url, key):
            found = obstore.get_ranges(
                self._store, key, starts=starts, lengths=lengths, coalesce=NEAR
            )
        for (start, length), piece in zip(ranges, found, strict=True):
            if len(piece) != length:
                raise self._too_short(key, start, length, start + len(piece))
        return [memoryview(piece) for piece in found]

    def size(self, key: str) -> int:
        with translated(self.url, key):
            return obstore.head(self._store, checked_key(self.url, key))["size"]

    def put(self, key: str, body: Body, *, create: bool = False) -> None:
        """Store bytes, a file, or chunks as they come; visible only when complete.

        `create` refuses to replace an object. S3 and its like can do that only in one
        request, so a body to create is held in memory there.
        """
        self._check_writable(key)
        with translated(self.url, key):
            if self.folder is not None:
                write_file(self.folder / key, body, create)
            else:
                # One in memory keeps what it is given, and the file may become another.
                kept = isinstance(self._store, MemoryStore)
                self._put(key, body if kept else _as_buffer(body), create)

    def _put(self, key: str, data: Body, create: bool) -> None:
        if isinstance(data, bytes | bytearray | memoryview) and not create:
            view = memoryview(data).cast("B")
            if self.put_direct(key, len(view), lambda: [view]):
                return
        in_parts: Any = {"chunk_size": PART, "max_concurrency": 4}
        how = {"mode": "create"} if create else in_parts
        obstore.put(self._store, key, data, **how)

    def put_direct(self, key: str, size: int, body: Callable[[], Iterable[Buffer]]) -> bool:
        """Store an object of so many bytes while it is made, if this store can do it, and does.

        It is tried once; `body` gives the pieces, from the beginning each time it is asked. Where
        it fails before its last piece, there is no object.
        """
        if self._direct is None or size > WHOLE:
            return False
        try:
            self._direct.put(checked_key(self.url, key), size, body)
        except NotGiven:
            return False
        return True

    def signed_url(self, method: Literal["GET", "PUT"], key: str, seconds: int) -> str:
        """A URL with which anybody may GET or PUT this one object for a while."""
        with translated(self.url, key):
            checked_key(self.url, key)
            try:
                return str(obstore.sign(self._store, method, key, timedelta(seconds=seconds)))
            except (TypeError, ValueError) as error:
                raise NotPossible(self.url, key, f"cannot sign URLs: {error}") from error

    def list(self, prefix: str = "") -> Listing:
        """Every object under the folder `prefix`, in the order of their keys."""
        with translated(self.url, prefix):
            self._refuse_http("", "cannot be listed")
            batches = obstore.list(self._store, checked_prefix(self.url, prefix), chunk_size=1000)
            found = (ObjectInfo(meta["path"], meta["size"]) for batch in batches for meta in batch)
            return sorted(found, key=lambda entry: entry.key)

    def delete(self, key: str) -> None:
        """Remove an object; one that is not there is already removed."""
        self._check_writable(key)
        try:
            with translated(self.url, key):
                obstore.delete(self._store, key)
        except Missing:
            return

    def delete_all(self, keys: Sequence[str]) -> None:
        """Remove objects, in as few requests as the store can do it with."""
        for key in keys:
            self._check_writable(key)
        if not keys:
            return
        try:
            with translated(self.url, keys[0]):
                obstore.delete(self._store, list(keys))
        except Missing:  # one of them was: a store that says so may have left the others
            for key in keys:
                self.delete(key)

    def _bound(self, key: str, size: int, limit: int) -> None:
        if size > limit:
            raise TooLarge(self.url, key, f"the object has {size} bytes, at most {limit} allowed")

    def _too_short(self, key: str, start: int, length: int, size: int) -> TooShort:
        why = f"the object ends at byte {size}, but bytes {start} to {start + length} were asked"
        return TooShort(self.url, key, why)

    def _check_writable(self, key: str) -> None:
        checked_key(self.url, key)
        self._refuse_http(key, "is read-only")

    def _refuse_http(self, key: str, what: str) -> None:
        if isinstance(self._store, HTTPStore):
            raise NotPossible(self.url, key, f"a bucket behind plain HTTP {what}")


class _Whole:
    """An object in memory, which it gets when its size is known.

    It is hashed piece by piece, while the processor's cache still has them.
    """

    def __init__(self, hasher: Hasher | None) -> None:
        self._body, self._hasher = memoryview(b""), hasher
        if hasher is not None:
            hasher.reset()

    def room(self, size: int) -> memoryview:
        # Not a bytearray: numpy asks the system for large pages, which cost a third.
        self._body = np.empty(size, np.uint8).data
        return self._body

    def filled(self, pieces: Iterable[memoryview]) -> memoryview:
        done = 0
        for piece in pieces:
            if piece.obj is not self._body.obj:  # else it is in its place
                self._body[done : done + len(piece)] = piece
            if self._hasher is not None:
                self._hasher.update(piece)
            done += len(piece)
        return self._body.toreadonly()


def _as_buffer(body: Body) -> Body:
    """A small file as a view of it, which costs obstore a third of what reading it does."""
    if not isinstance(body, Path) or not 0 < body.stat().st_size <= WHOLE:
        return body
    # Its mapping ends with the last view of it: an error that is told may still hold one.
    with body.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _read_file(path: Path, chunk: int) -> Reading:
    """A file in chunks; obstore reads one in pieces of 8 kB, ten times slower."""
    if not path.is_file():
        raise FileNotFoundError(path)
    file = path.open("rb", buffering=0)

    def pieces() -> Iterator[memoryview]:
        with file:
            while piece := file.read(chunk):
                yield memoryview(piece)

    return Reading(os.fstat(file.fileno()).st_size, pieces())
