"""What a checkpoint says of itself: size and BLAKE3 of every file. Needs no torch."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from blake3 import blake3

from folkmoot.core.unreadable import UNREADABLE

MANIFEST = "manifest.json"
MANIFEST_LIMIT = 1 << 20
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$")]


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says which and why."""


class NotWanted(Exception):
    """The caller no longer wants a checkpoint saved or read to its end."""


class StoredObject(Protocol):
    @property
    def key(self) -> str: ...

    @property
    def size(self) -> int: ...


class ObjectStore(Protocol):
    url: str
    folder: Path | None

    def put(self, key: str, body: Iterable[bytes | bytearray | memoryview]) -> None: ...

    def stream(self, key: str, limit: int) -> Iterator[bytes]: ...

    def list(self, prefix: str = "") -> Iterable[StoredObject]: ...

    def delete(self, key: str) -> None: ...


class FileDigest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: Annotated[int, msgspec.Meta(ge=0)]
    blake3: str


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: int
    files: dict[FileName, FileDigest]
    version: int = 1


def read_manifest(store: ObjectStore, name: str, sizes: Mapping[str, int]) -> Manifest:
    """The manifest of a checkpoint whose files have the `sizes` that it says."""
    where, key = f"checkpoint {name} in {store.url}", f"{name}/{MANIFEST}"
    if not 0 < sizes.get(key, 0) <= MANIFEST_LIMIT:
        raise CheckpointError(f"{where}: has no manifest of a sensible size")
    content = b"".join(store.stream(key, MANIFEST_LIMIT))
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except UNREADABLE as error:
        raise CheckpointError(f"{where}: its manifest cannot be read: {error}") from error
    if manifest.version != 1:
        raise CheckpointError(f"{where}: is of version {manifest.version}; this program reads 1")
    for file, digest in manifest.files.items():
        if sizes.get(f"{name}/{file}") != digest.size:
            raise CheckpointError(
                f"{name}/{file} in {store.url}: has {sizes.get(f'{name}/{file}', 'no')} bytes where"
                f" its manifest says {digest.size}"
            )
    return manifest


def checked_chunks(
    store: ObjectStore, key: str, digest: FileDigest, stopped: Callable[[], bool] = lambda: False
) -> Iterator[bytes]:
    """The chunks of a file; at the end they must have been what the manifest says."""
    hasher = blake3()
    for chunk in store.stream(key, digest.size):
        if stopped():
            raise NotWanted
        hasher.update(chunk)
        yield chunk
    if hasher.hexdigest() != digest.blake3:
        raise CheckpointError(
            f"{key} in {store.url}: its content is not what its manifest says (hash differs)"
        )


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def all_checkpoints(store: ObjectStore) -> set[str]:
    """Names of the checkpoints that were begun, finished or not."""
    found = (re.match(r"(step-[0-9]{8,})/", entry.key) for entry in store.list())
    return {match[1] for match in found if match}


def complete_checkpoints(store: ObjectStore) -> list[str]:
    """Names of the checkpoints that were finished: those with a manifest."""
    found = (re.fullmatch(r"(step-[0-9]{8,})/manifest\.json", entry.key) for entry in store.list())
    return [match[1] for match in found if match]
