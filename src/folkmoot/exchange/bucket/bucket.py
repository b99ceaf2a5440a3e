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
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import msgspec
import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, HTTPStore, S3Store

from folkmoot.exchange.bucket.backend import folder_of, open_store
from folkmoot.exchange.bucket.errors import (
    BrokenOff,
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
    write_file,
)
from folkmoot.exchange.bucket.keys import checked_key, checked_prefix, checked_range
from folkmoot.exchange.bucket.retry import retry_broken_off

NEAR = 64 << 10
"""Ranges at most this far apart are cheaper to read through than to ask for twice."""
IN_PARTS = (S3Store, GCSStore, AzureStore)
"""Stores from which a large object is read in parts, side by side."""
AT_ONCE = 4
MAPPED = 16 << 20
"""A file of at most so many bytes is sent out of its mapping; a larger one is read in pieces."""


class ObjectInfo(msgspec.Struct, frozen=True):
    key: str
    size: int


Listing = list[ObjectInfo]
Ranges = list[memoryview]


class Bucket:
    """`patience`: seconds a failing or stalled store is retried before it is an error."""

    def __init__(
        self, url: str, options: Mapping[str, str] | None = None, patience: float = 60.0
    ) -> None:
        self.url = url
        self.folder = folder_of(url)
        self._store = open_store(url, self.folder, dict(options or {}), patience)

    @retry_broken_off
    def get(self, key: str, limit: int) -> memoryview:
        """The whole object, without a copy, if it has at most `limit` bytes."""
        with translated(self.url, key):
            checked_key(self.url, key)
            if isinstance(self._store, IN_PARTS):
                return self._in_parts(key, limit)
            found = obstore.get(self._store, key)
            self._bound(key, found.meta["size"], limit)
            return memoryview(found.bytes())

    def _in_parts(self, key: str, limit: int) -> memoryview:
        """One connection of a store gives a fraction of what it gives to several."""
        try:
            first = obstore.get(self._store, key, options={"range": (0, PART)})
        except exceptions.BaseError as error:
            if "416" not in str(error):
                raise
            return memoryview(obstore.get(self._store, key).bytes())  # an empty object has no range
        size, tag = first.meta["size"], first.meta["e_tag"]
        self._bound(key, size, limit)
        if size <= PART:
            return memoryview(first.bytes())
        body = memoryview(bytearray(size))

        def read(start: int) -> None:
            end = min(start + PART, size)
            # Of the same object: who replaces it meanwhile must not be mixed with it.
            same: Any = {"range": (start, end), "if_match": tag}
            try:
                part = obstore.get(self._store, key, options=same)
            except exceptions.PreconditionError:
                raise BrokenOff(self.url, key, "it was replaced while it was read") from None
            body[start:end] = memoryview(part.bytes())

        with ThreadPoolExecutor(AT_ONCE) as threads:
            rest = threads.map(read, range(PART, size, PART))
            body[:PART] = memoryview(first.bytes())
            for _ in rest:
                pass
        return body.toreadonly()

    def stream(self, key: str, limit: int, chunk: int = PART) -> Iterator[bytes]:
        """The object in chunks of about `chunk` bytes, for what should not be in memory."""
        with translated(self.url, key):
            if self.folder is not None:
                yield from self._file(self.folder, key, limit, chunk)
                return
            found = obstore.get(self._store, checked_key(self.url, key))
            self._bound(key, found.meta["size"], limit)
            yield from map(bytes, found.stream(min_chunk_size=chunk))

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
                in_parts: Any = {"chunk_size": PART, "max_concurrency": 4}
                how = {"mode": "create"} if create else in_parts
                with _as_buffer(body) as data:
                    obstore.put(self._store, key, data, **how)

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

    def _file(self, folder: Path, key: str, limit: int, chunk: int) -> Iterator[bytes]:
        """A file in chunks; obstore reads one in pieces of 8 kB, ten times slower."""
        path = folder / checked_key(self.url, key)
        if not path.is_file():
            raise FileNotFoundError(path)
        with path.open("rb", buffering=0) as file:
            self._bound(key, os.fstat(file.fileno()).st_size, limit)
            while piece := file.read(chunk):
                yield piece

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


@contextlib.contextmanager
def _as_buffer(body: Body) -> Iterator[Body]:
    """A small file as a view of it, which costs obstore a third of what reading it does."""
    if not isinstance(body, Path) or not 0 < body.stat().st_size <= MAPPED:
        yield body
        return
    with (
        body.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
        memoryview(mapped) as view,
    ):
        yield view
