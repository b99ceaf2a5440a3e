"""The participant's side of the bucket: read `<round>/global`, write `<round>/<participant_id>`.

A small global model is read into memory and judged by its digest there. A large one in a folder is
mapped, not copied: pages are read when training touches them. An update appears in the bucket whole
or not at all, and its digest is computed while it is written.
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from folkmoot.exchange.bucket import Bucket, BucketError
from folkmoot.federated.arrays import (
    BLOCK,
    Array,
    BadModel,
    Layout,
    ModelWriter,
    decode_header,
    encode_header,
    layout_of,
)

CHUNK = 8 << 20
#: Bytes that fit a core's second-level cache.
PIECE = 1 << 18
#: Bytes of a global model up to which participants copy it, and its file may be written over when
#: it is pruned. A larger one is mapped, so its file must never change.
SMALL = 16 << 20
#: In a folder bucket: where the coordinator puts a participant's last file when it is used up.
SPARE = "#spare"
Arrays = dict[str, Array]


class WeightsUnavailable(Exception):
    """The bucket does not give or take weights now; a later attempt may succeed."""


@contextlib.contextmanager
def trouble() -> Iterator[None]:
    """Tell trouble with the bucket from trouble in a participant's own code."""
    try:
        yield
    except (BucketError, BadModel, OSError) as error:
        raise WeightsUnavailable(str(error)) from error


class Weights:
    """Reads and writes with the participant's own right to the bucket."""

    def __init__(self, bucket: Bucket, max_object: int = 8 << 30) -> None:
        self.bucket, self.max_object = bucket, max_object

    def read_global(self, round_: int, digest: bytes) -> Arrays:
        """The round's global model, when its bytes are the ones announced."""
        with trouble():
            return self._read_global(round_, digest)

    def write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        """Put an update into the bucket; its digest."""
        with trouble():
            return self._write_update(round_, participant_id, arrays)

    def _read_global(self, round_: int, digest: bytes) -> Arrays:
        key = f"{round_}/global"
        if self.bucket.folder is not None:
            path = self.bucket.folder / key
            body, hasher = _read_file(path) if path.stat().st_size <= SMALL else _mapped(path)
            return decoded(key, body, digest, hasher)
        return decoded(key, self.bucket.get(key, self.max_object), digest)

    def _write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        key = f"{round_}/{participant_id}"
        if self.bucket.folder is None:
            hasher = blake3()
            self.bucket.put(key, chunks(layout_of(arrays), arrays, hasher))
            return hasher.digest()
        spare = self.bucket.folder / SPARE / participant_id
        return _write_file(self.bucket.folder / key, arrays, spare)


def decoded(key: str, body: memoryview, digest: bytes, hasher: Any = None) -> Arrays:
    """The model in a whole body, as read-only views of it; `hasher` if it was hashed already."""
    if (hasher or blake3(body)).digest() != digest:
        raise BadModel(f"{key} in the bucket is not the model that the coordinator announced")
    layout, offsets = decode_header(bytes(body[: 8 + _header(body)]), len(body))
    data = np.frombuffer(body, np.uint8)
    return {
        name: data[offsets[name] : offsets[name] + meta.nbytes].view(meta.numpy).reshape(meta.shape)
        for name, meta in layout.items()
    }


def _read_file(path: Path) -> tuple[memoryview, Any]:
    """A file's bytes and their hash, in one pass: a piece is hashed while it is in the cache."""
    hasher, done = blake3(), 0
    with path.open("rb", buffering=0) as file:
        body = memoryview(np.empty(os.fstat(file.fileno()).st_size, np.uint8).data)
        while got := file.readinto(body[done : done + PIECE]):
            hasher.update(body[done : done + got])
            done += got
    return body[:done].toreadonly(), hasher


def _mapped(path: Path) -> tuple[memoryview, Any]:
    body = memoryview(np.memmap(path, np.uint8, "r").data)
    return body, blake3(body)


def _header(body: memoryview) -> int:
    return int.from_bytes(body[:8], "little")


def _flat(arrays: Mapping[str, Array], name: str, dtype: Any) -> memoryview:
    return np.ascontiguousarray(arrays[name], dtype).reshape(-1).view(np.uint8).data


def _write_file(path: Path, arrays: Mapping[str, Array], spare: Path) -> bytes:
    # Not synced: after a power cut the coordinator sees from the digest that it must ask again.
    writer = ModelWriter(path, layout_of(arrays), spare)
    hasher = blake3(encode_header(writer.layout))
    try:
        for name, meta in writer.layout.items():
            values = np.ascontiguousarray(arrays[name], meta.numpy).reshape(-1)
            # A block is hashed while it is still in the cache that the write filled.
            for start in range(0, meta.size, BLOCK):
                block = values[start : start + BLOCK]
                writer.write(name, start, block)
                hasher.update(block.view(np.uint8).data)
        writer.commit(durable=False)
    finally:
        writer.abort()
    return hasher.digest()


def chunks(layout: Layout, arrays: Mapping[str, Array], hasher: Any) -> Iterator[bytes]:
    """The body of a model in pieces, each hashed as it goes out."""
    head = encode_header(layout)
    hasher.update(head)
    yield head
    for name, meta in layout.items():
        view = _flat(arrays, name, meta.numpy)
        for start in range(0, len(view), CHUNK):
            piece = bytes(view[start : start + CHUNK])
            hasher.update(piece)
            yield piece
