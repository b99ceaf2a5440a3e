"""Checkpoints in the Hugging Face layout, whole or not at all, checked by hash.

A checkpoint is a folder `step-00001200` in a store:

    for anyone        config.json  model.safetensors  tokenizer.json  tokenizer_config.json
    for exact resume  state.safetensors  progress.json
    for checking      manifest.json: size and BLAKE3 of every file

The manifest is written last and deleted first: a folder without one is a checkpoint that was
not finished. Before use every file is checked against it, and a checkpoint that fails is
passed over, with a warning, for the one before. A store that does not answer is another
matter: its error goes to the caller, who should not train on from an older state because of it.

A store is anything with the bucket's `put`, `stream`, `list` and `delete`; `learning` does not care
whether it is a folder or S3.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
from blake3 import blake3
from torch import Tensor, nn

from folkmoot.learning import tensors
from folkmoot.learning.data.tokenizer import Tokenizer
from folkmoot.learning.manifest import (
    MANIFEST,
    CheckpointError,
    FileMark,
    Manifest,
    Store,
    read_manifest,
)
from folkmoot.learning.models.gpt import GPT
from folkmoot.learning.models.huggingface_config import llama_config

__all__ = ["Cancelled", "CheckpointError", "Store", "fetch", "latest", "save"]

log = logging.getLogger(__name__)


class Cancelled(Exception):
    """Saving was stopped by the caller; nothing of the checkpoint counts."""


def save(
    store: Store,
    step: int,
    model: nn.Module,
    *,
    tokenizer: Tokenizer | None = None,
    state: Mapping[str, Tensor] | None = None,
    progress: Mapping[str, Any] | None = None,
    keep: int = 0,
    stopped: Callable[[], bool] = lambda: False,
) -> str:
    """Write a checkpoint and give its name; with `keep`, remove all but the newest so many.

    `state` is the exchange method's, `progress` whatever JSON the caller needs to go on.
    `stopped` is asked between chunks; once true, what was written is removed again.
    """
    name = f"step-{step:08d}"
    store.delete(f"{name}/{MANIFEST}")
    marks: dict[str, FileMark] = {}
    try:
        for file, content in _contents(model, tokenizer, state, progress or {}, step):
            marks[file] = _put(store, f"{name}/{file}", content, stopped)
    except Cancelled:
        _remove(store, name)
        raise
    store.put(f"{name}/{MANIFEST}", [msgspec.json.encode(Manifest(step, marks))])
    if keep:
        for old in sorted(_complete(store))[:-keep]:
            _remove(store, old)
    return name


def latest(store: Store, into: Path | None = None) -> Path:
    """A folder with the newest checkpoint that passes every check.

    `into` is where files of a remote store are put; a store that is a folder needs none.
    """
    complete = _complete(store)
    unfinished = {entry.key.split("/")[0] for entry in store.list()} - set(complete)
    for name in sorted(unfinished):
        if re.fullmatch(r"step-\d{8,}", name):
            log.warning("checkpoint %s in %s was never finished; passing it over", name, store.url)
    for name in sorted(complete, reverse=True):
        try:
            return fetch(store, name, into)
        except CheckpointError as error:
            log.warning("%s; trying the checkpoint before", error)
    raise CheckpointError(f"{store.url}: there is no usable checkpoint here")


def fetch(store: Store, name: str, into: Path | None = None) -> Path:
    """Check every file of a checkpoint, and bring it to this machine if it is elsewhere."""
    sizes = {entry.key: entry.size for entry in store.list(name)}
    manifest = read_manifest(store, name, sizes)
    folder = store.folder / name if store.folder else None
    if folder is None:
        if into is None:
            raise ValueError(f"{store.url} is remote: say which folder to bring {name} into")
        folder = into / name
        folder.mkdir(parents=True, exist_ok=True)
    for file, mark in manifest.files.items():
        _check(store, f"{name}/{file}", mark, None if store.folder else folder / file)
    return folder


def _contents(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    state: Mapping[str, Tensor] | None,
    progress: Mapping[str, Any],
    step: int,
) -> Iterator[tuple[str, Iterable[bytes | memoryview]]]:
    yield "config.json", [_config_json(model)]
    yield "model.safetensors", tensors.chunks(tensors.untied(model))
    if tokenizer is not None:
        yield "tokenizer.json", [tokenizer.to_json().encode()]
        yield "tokenizer_config.json", [_tokenizer_config(tokenizer)]
    if state is not None:
        yield "state.safetensors", tensors.chunks(state)
    yield "progress.json", [msgspec.json.encode({"step": step, **progress})]


def _config_json(model: nn.Module) -> bytes:
    if isinstance(model, GPT):
        config = llama_config(model.config)
    else:
        theirs: Any = model.config
        config = {**theirs.to_dict(), "architectures": [type(model).__name__]}
    return msgspec.json.format(msgspec.json.encode(config))


def _tokenizer_config(tokenizer: Tokenizer) -> bytes:
    config: dict[str, object] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    if tokenizer.end is not None:
        config["eos_token"] = tokenizer.inner.id_to_token(tokenizer.end)
    return msgspec.json.encode(config)


def _put(
    store: Store, key: str, content: Iterable[bytes | memoryview], stopped: Callable[[], bool]
) -> FileMark:
    hasher, size = blake3(), 0

    def marked() -> Iterator[bytes | memoryview]:
        nonlocal size
        for chunk in content:
            if stopped():
                raise Cancelled(f"{key}: stopped after {size} bytes")
            hasher.update(chunk)
            size += len(chunk)
            yield chunk

    store.put(key, marked())
    return FileMark(size, hasher.hexdigest())


def _check(store: Store, key: str, mark: FileMark, copy: Path | None) -> None:
    """Compare a file with its mark, writing it to `copy` on the way."""
    hasher = blake3()
    with copy.open("wb") if copy else nullcontext() as out:
        for chunk in store.stream(key, mark.size):
            hasher.update(chunk)
            if out:
                out.write(chunk)
    if hasher.hexdigest() != mark.blake3:
        raise mark.differs(store, key)


def _complete(store: Store) -> list[str]:
    found = (re.fullmatch(r"(step-\d{8,})/manifest\.json", entry.key) for entry in store.list())
    return [match[1] for match in found if match]


def _remove(store: Store, name: str) -> None:
    store.delete(f"{name}/{MANIFEST}")
    for entry in store.list(name):
        store.delete(entry.key)
