"""Find the newest checkpoint of a store that passes every check, and bring it to this machine."""

import logging
from contextlib import nullcontext
from pathlib import Path

from folkmoot.learning.checkpoints.manifest import (
    CheckpointError,
    ObjectStore,
    all_checkpoints,
    checked_chunks,
    complete_checkpoints,
    read_manifest,
)

log = logging.getLogger(__name__)


def latest(store: ObjectStore, into: Path | None = None) -> Path:
    """A folder with the newest checkpoint that passes every check.

    `into` is where files of a remote store are put; a store that is a folder needs none.
    """
    complete = complete_checkpoints(store)
    for name in sorted(all_checkpoints(store) - set(complete)):
        log.warning("checkpoint %s in %s was never finished; passing it over", name, store.url)
    for name in sorted(complete, reverse=True):
        try:
            return fetch(store, name, into)
        except CheckpointError as error:
            log.warning("%s; trying the checkpoint before", error)
    raise CheckpointError(f"{store.url}: there is no usable checkpoint here")


def fetch(store: ObjectStore, name: str, into: Path | None = None) -> Path:
    """Check every file of a checkpoint, and bring it to this machine if it is elsewhere."""
    sizes = {entry.key: entry.size for entry in store.list(name)}
    manifest = read_manifest(store, name, sizes)
    folder = store.folder / name if store.folder else None
    if folder is None:
        if into is None:
            raise ValueError(f"{store.url} is remote: say which folder to bring {name} into")
        folder = into / name
        folder.mkdir(parents=True, exist_ok=True)
    for file, digest in manifest.files.items():
        with nullcontext() if store.folder else (folder / file).open("wb") as copy:
            for chunk in checked_chunks(store, f"{name}/{file}", digest):
                if copy:
                    copy.write(chunk)
    return folder
