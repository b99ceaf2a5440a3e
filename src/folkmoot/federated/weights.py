"""The participant's side of the bucket: read `<round>/global`, write `<round>/<participant_id>`.

A global model from a folder is mapped, not copied: pages are read when training touches them. An
update appears in the bucket whole or not at all, and its digest is computed while it is written.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3

from folkmoot.exchange.bucket import Bucket
from folkmoot.federated.arrays import (
    BLOCK,
    Array,
    BadModel,
    ModelFile,
    ModelWriter,
    decode_header,
    encode_header,
    layout_of,
)

CHUNK = 8 << 20
#: In a folder bucket: where the coordinator puts a participant's last file when it is used up.
SPARE = "#spare"
Arrays = dict[str, Array]


class Weights:
    def __init__(self, bucket: Bucket, max_object: int = 8 << 30) -> None:
        self.bucket, self.max_object = bucket, max_object

    def read_global(self, round_: int, digest: bytes) -> Arrays:
        """The round's global model; `BadModel` when its bytes are not the ones announced."""
        key = f"{round_}/global"
        if self.bucket.folder is not None:
            return self._mapped(self.bucket.folder / key, digest)
        body = self.bucket.get(key, self.max_object)
        _verify(key, body, digest)
        layout, offsets = decode_header(bytes(body[: 8 + _header(body)]), len(body))
        data = np.frombuffer(body, np.uint8)
        return {
            name: data[offsets[name] : offsets[name] + meta.nbytes]
            .view(meta.numpy)
            .reshape(meta.shape)
            for name, meta in layout.items()
        }

    def write_update(self, round_: int, participant_id: str, arrays: Mapping[str, Array]) -> bytes:
        """Put an update into the bucket; its digest."""
        key = f"{round_}/{participant_id}"
        if self.bucket.folder is None:
            hasher = blake3()
            self.bucket.put(key, _chunks(arrays, hasher))
            return hasher.digest()
        spare = self.bucket.folder / SPARE / participant_id
        return _write_file(self.bucket.folder / key, arrays, spare)

    def _mapped(self, path: Path, digest: bytes) -> Arrays:
        with ModelFile(path) as model:
            arrays = model.arrays()
        _verify(path.name, np.memmap(path, np.uint8, "r"), digest)
        return arrays


def _verify(key: str, body: Any, digest: bytes) -> None:
    if blake3(body).digest() != digest:
        raise BadModel(f"{key} in the bucket is not the model that the coordinator announced")


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


def _chunks(arrays: Mapping[str, Array], hasher: Any) -> Iterator[bytes]:
    """The body of a model in pieces, each hashed as it goes out."""
    layout = layout_of(arrays)
    head = encode_header(layout)
    hasher.update(head)
    yield head
    for name, meta in layout.items():
        view = _flat(arrays, name, meta.numpy)
        for start in range(0, len(view), CHUNK):
            piece = bytes(view[start : start + CHUNK])
            hasher.update(piece)
            yield piece
