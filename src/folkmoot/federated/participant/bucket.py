"""The participant's side of the bucket: read `<round>/global`, write `<round>/<participant_id>`.

A global model in a folder is mapped, not copied, under a lock that keeps the coordinator from
writing over its file for as long as somebody has it. An update appears in the bucket whole or not
at all, and its digest is computed while it is written.
"""

import contextlib
import fcntl
import mmap
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from folkmoot.exchange.bucket import Bucket, BucketError
from folkmoot.exchange.bucket.keys import checked_key
from folkmoot.federated.model_file.file_stat import stamp as stamp_of
from folkmoot.federated.model_file.hashing_writer import HashingWriter
from folkmoot.federated.model_file.layout import (
    Array,
    BadModel,
    Layout,
    array_views,
    decode_header,
    encode_header,
    header_length,
    layout_of,
)
from folkmoot.federated.model_file.reader import page_aligned

CHUNK = 8 << 20
#: An update of at most so many bytes is put together before it goes into a remote bucket.
WHOLE = 64 << 20
#: Fewer bytes are copied sooner than an open file is kept for them.
MAP_FROM = 1 << 18
#: In a folder bucket: where the coordinator puts a participant's last file when it is used up.
SPARE = "#spare"
Arrays = dict[str, Array]


class WeightsUnavailable(Exception):
    """The bucket does not give or take weights now; a later attempt may succeed."""


@contextlib.contextmanager
def as_weights_unavailable() -> Iterator[None]:
    """Tell trouble with the bucket from trouble in a participant's own code."""
    try:
        yield
    except (BucketError, BadModel, OSError) as error:
        raise WeightsUnavailable(str(error)) from error


class ParticipantBucket:
    """Reads and writes with the participant's own right to the bucket."""

    def __init__(self, bucket: Bucket, max_object: int = 8 << 30) -> None:
        self.bucket, self.max_object = bucket, max_object

    @as_weights_unavailable()
    def read_global(self, round_: int, digest: bytes, stamp: bytes = b"") -> Arrays:
        """The round's global model, when its bytes are the ones announced.

        A file of the announced `stamp` is the one that the coordinator wrote; another is hashed.
        """
        key = checked_key(self.bucket.url, f"{round_}/global")
        if self.bucket.folder is not None:
            body, found = _mapped(self.bucket.folder / key, self.max_object)
            return decoded(key, body, digest, known=bool(stamp) and found == stamp)
        return decoded(key, self.bucket.get(key, self.max_object), digest)

    @as_weights_unavailable()
    def write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        """Put an update into the bucket; its digest."""
        key = checked_key(self.bucket.url, f"{round_}/{participant_id}")
        layout, folder = layout_of(arrays), self.bucket.folder
        if folder is None:
            hasher = blake3()
            if sum(meta.nbytes for meta in layout.values()) <= WHOLE:
                self.bucket.put(key, whole_body(layout, arrays, hasher))
            else:
                self.bucket.put(key, chunks(layout, arrays, hasher))
            return hasher.digest()
        spare = folder / SPARE / participant_id
        with contextlib.closing(HashingWriter(folder / key, layout, spare)) as writer:
            writer.write_all(arrays)
            digest = writer.digest()
            # Not synced: after a power cut the coordinator sees from the digest that it must ask
            # again.
            writer.commit(durable=False)
        return digest


def decoded(key: str, body: memoryview, digest: bytes, *, known: bool = False) -> Arrays:
    """The model in a whole body, as read-only views of it; hashed unless it is known."""
    if not known and blake3(body).digest() != digest:
        raise BadModel(f"{key} in the bucket is not the model that the coordinator announced")
    length = header_length(bytes(body[:8]), len(body))
    layout, offsets = decode_header(bytes(body[: 8 + length]), len(body))
    try:
        return array_views(np.frombuffer(body, np.uint8), layout, offsets)
    except (ValueError, OverflowError) as error:  # sides that no array can have
        raise BadModel(f"{key} holds an array that cannot be made: {error}") from None


def _mapped(path: Path, limit: int) -> tuple[memoryview, bytes]:
    """A file's bytes, which the coordinator does not change while they are in use, and its stamp.

    The lock is shared, and lasts as long as the mapping, which keeps the file open. Without it, as
    where somebody else keeps the file locked, the bytes are copied; so are few.
    """
    with open(path, "rb", buffering=0, opener=_plain_file) as file:
        if (size := os.fstat(file.fileno()).st_size) > limit:
            raise BadModel(f"{path} has {size} bytes; at most {limit} are read")
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            found = os.fstat(file.fileno())
            if found.st_size > MAP_FROM:
                body = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
                return memoryview(body), stamp_of(found)
        return memoryview(file.read(limit)), b""


def _plain_file(path: str, flags: int) -> int:
    """Open a file, and nothing that could keep us waiting or lead elsewhere."""
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BadModel(f"{path} is not a plain file")
    return fd


def whole_body(layout: Layout, arrays: Mapping[str, Array], hasher: Any) -> memoryview:
    """The body of a model in one buffer, hashed."""
    head = encode_header(layout)
    body = page_aligned(len(head) + sum(meta.nbytes for meta in layout.values()))
    body[: (done := len(head))] = np.frombuffer(head, np.uint8)
    for name, meta in layout.items():
        part = body[done : (done := done + meta.nbytes)]
        part[:] = np.ascontiguousarray(arrays[name], meta.numpy).reshape(-1).view(np.uint8)
    hasher.update(body.data)
    return body.data.toreadonly()


def chunks(layout: Layout, arrays: Mapping[str, Array], hasher: Any) -> Iterator[bytes]:
    """The body of a model in pieces, each hashed as it goes out."""
    head = encode_header(layout)
    hasher.update(head)
    yield head
    for name, meta in layout.items():
        view = np.ascontiguousarray(arrays[name], meta.numpy).reshape(-1).view(np.uint8).data
        for start in range(0, len(view), CHUNK):
            piece = bytes(view[start : start + CHUNK])
            hasher.update(piece)
            yield piece
