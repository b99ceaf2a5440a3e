"""The state hash of a stored checkpoint, from its bytes alone, in one pass and little memory.

Every file must be what the manifest says, whole; the tensors of the safetensors files give the
leaf hashes, and these the root that clients agree on. So whoever can read a store can tell whether
a checkpoint is the model that a quorum agreed on, without torch and without building the model.
"""

import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import msgspec

from folkmoot.core.unreadable import UNREADABLE
from folkmoot.learning.checkpoints.leaf_hash import DTYPES, leaf_hasher, root_hash
from folkmoot.learning.checkpoints.manifest import (
    CheckpointError,
    ObjectStore,
    checked_chunks,
    read_manifest,
)

HEADER_LIMIT = 16 << 20
Natural = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class TensorSpan(msgspec.Struct, frozen=True):
    """A tensor in the header of a safetensors file."""

    dtype: str
    shape: list[Natural]
    data_offsets: tuple[Natural, Natural]


def stored_hash(store: ObjectStore, name: str, step: int, stopped: Callable[[], bool]) -> bytes:
    """The state hash of checkpoint `name`, which is of `step`; raises `CheckpointError`."""
    manifest = read_manifest(store, name, {entry.key: entry.size for entry in store.list(name)})
    if manifest.step != step:
        raise CheckpointError(f"{name} in {store.url}: is of step {manifest.step}, not of {step}")
    hashes: dict[str, bytes] = {}
    for file, digest in manifest.files.items():
        content = checked_chunks(store, f"{name}/{file}", digest, stopped)
        if file.endswith(".safetensors"):
            found = _leaf_hashes(content, f"{name}/{file} in {store.url}")
            if twice := hashes.keys() & found.keys():
                raise CheckpointError(f"{name} in {store.url}: {min(twice)} is there twice")
            hashes |= found
        else:
            for _ in content:
                pass
    return root_hash(hashes)


def _leaf_hashes(content: Iterator[bytes], where: str) -> dict[str, bytes]:
    """The leaf hash of every tensor of a safetensors file, which is read to its end."""
    reading = _Reading(content, where)
    size = int.from_bytes(reading.take(8), "little")
    if not 0 < size <= HEADER_LIMIT:
        raise CheckpointError(f"{where}: its header would have {size} bytes")
    spans = _spans(reading.take(size), where)
    hashes, at = {}, 0
    for name, span in sorted(spans.items(), key=lambda item: item[1].data_offsets):
        start, end = span.data_offsets
        dtype, width = DTYPES.get(span.dtype, ("", 0))
        if not dtype or start != at or end - start != math.prod(span.shape) * width:
            raise CheckpointError(f"{where}: tensor {name} is not laid out as its header says")
        hasher = leaf_hasher(name, dtype, span.shape)
        reading.feed(hasher, end - start)
        hashes[name], at = hasher.digest(), end
    if reading.rest():
        raise CheckpointError(f"{where}: has more bytes than its header says")
    return hashes


def _spans(header: bytes, where: str) -> dict[str, TensorSpan]:
    try:
        table = msgspec.json.decode(header, type=dict[str, Any])
        table.pop("__metadata__", None)
        return msgspec.convert(table, dict[str, TensorSpan])
    except UNREADABLE as error:
        raise CheckpointError(f"{where}: its header cannot be read: {error}") from error


class _Reading:
    """Chunks, read in other pieces than they come in."""

    def __init__(self, chunks: Iterator[bytes], where: str) -> None:
        self._chunks, self._where = chunks, where
        self._chunk = memoryview(b"")

    def _next(self, most: int) -> memoryview:
        while not self._chunk:
            chunk = next(self._chunks, None)
            if chunk is None:
                raise CheckpointError(f"{self._where}: ends too early")
            self._chunk = memoryview(chunk)
        piece, self._chunk = self._chunk[:most], self._chunk[most:]
        return piece

    def take(self, size: int) -> bytes:
        taken = bytearray()
        while len(taken) < size:
            taken += self._next(size - len(taken))
        return bytes(taken)

    def feed(self, hasher: Any, size: int) -> None:
        while size:
            piece = self._next(size)
            hasher.update(piece)
            size -= len(piece)

    def rest(self) -> int:
        """Bytes that are left; reads them all."""
        return len(self._chunk) + sum(len(chunk) for chunk in self._chunks)
