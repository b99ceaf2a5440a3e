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

import numpy as np
from blake3 import blake3

from folkmoot.exchange.bucket import Bucket, BucketError
from folkmoot.exchange.bucket.bucket import WHOLE
from folkmoot.exchange.bucket.keys import checked_key
from folkmoot.federated.model_file.file_stat import stamp as stamp_of
from folkmoot.federated.model_file.hashing_writer import HashingWriter
from folkmoot.federated.model_file.layout import (
    Array,
    BadModel,
    array_views,
    decode_header,
    header_length,
    layout_of,
)
from folkmoot.federated.model_file.outgoing import OutgoingModel

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
            known = bool(stamp) and found == stamp
            return decoded(key, body, digest, digest if known else blake3(body).digest())
        hasher = blake3()
        body = self.bucket.get(key, self.max_object, hasher)
        return decoded(key, body, digest, hasher.digest())

    @as_weights_unavailable()
    def write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        """Put an update into the bucket; its digest."""
        key = checked_key(self.bucket.url, f"{round_}/{participant_id}")
        if (folder := self.bucket.folder) is None:
            body = OutgoingModel(arrays)
            if not self.bucket.put_direct(key, body.size, body.pieces):
                # In one request where that can be: pieces would take three at the least.
                whole = body.size <= WHOLE
                self.bucket.put(key, b"".join(body.pieces()) if whole else body.pieces())
            return body.digest()
        spare = folder / SPARE / participant_id
        with contextlib.closing(HashingWriter(folder / key, layout_of(arrays), spare)) as writer:
            writer.write_all(arrays)
            digest = writer.digest()
            # Not synced: after a power cut the coordinator sees from the digest that it must ask
            # again.
            writer.commit(durable=False)
        return digest


def decoded(key: str, body: memoryview, announced: bytes, found: bytes) -> Arrays:
    """The model in a whole body, as read-only views of it, if its digest is the announced one."""
    if found != announced:
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
