"""Checkpoints in the Hugging Face layout, whole or not at all, checked by hash.

A checkpoint is a folder `step-00001200` in a store:

    for anyone        config.json  model.safetensors  tokenizer.json  tokenizer_config.json
    for exact resume  state.safetensors  progress.json
    for checking      manifest.json: size and BLAKE3 of every file

The manifest is written last: a folder without one is a checkpoint that was not finished. Before use
every file is checked against it, and a checkpoint that fails is passed over, with a warning, for
the one before. A store that does not answer is another matter: its error goes to the caller, who
should not train on from an older state because of it.

Several clients of a run may store the same step at once, in the same folder. All of them write the
same bytes, whole files at a time, so none disturbs another as long as nobody removes anything:
whoever is stopped leaves what it wrote. `prune` removes what was never finished.

A store is anything with the bucket's `put`, `stream`, `list` and `delete`; `learning` does not care
whether it is a folder or S3.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from blake3 import blake3
from torch import Tensor, nn

from folkmoot.learning.checkpoints import safetensors_file
from folkmoot.learning.checkpoints.manifest import (
    MANIFEST,
    FileDigest,
    Manifest,
    NotWanted,
    ObjectStore,
    all_checkpoints,
    checkpoint_name,
    complete_checkpoints,
)
from folkmoot.learning.data.tokenizer import Tokenizer
from folkmoot.learning.models.gpt import GPT
from folkmoot.learning.models.huggingface_config import llama_config


def save(
    store: ObjectStore,
    step: int,
    model: nn.Module,
    *,
    tokenizer: Tokenizer | None = None,
    state: Mapping[str, Tensor] | None = None,
    progress: Mapping[str, Any] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> str:
    """Write a checkpoint and give its name.

    `state` is the exchange method's, `progress` whatever JSON the caller needs to go on.
    `stopped` is asked between chunks; once true, `NotWanted` is raised and no checkpoint made.
    """
    name = checkpoint_name(step)
    files: dict[str, FileDigest] = {}
    for file, content in _contents(model, tokenizer, state, progress or {}, step):
        files[file] = _put(store, f"{name}/{file}", content, stopped)
    store.put(f"{name}/{MANIFEST}", [msgspec.json.encode(Manifest(step, files))])
    return name


def prune(store: ObjectStore, keep: int, newest: str) -> list[str]:
    """Remove all but `keep` (1 or more) of the finished checkpoints up to `newest`; their names.

    `newest` is the one that the run would go back to. It stays, and so does what is newer: others
    may be storing it. What is older and was never finished goes as well.
    """
    done = sorted(name for name in complete_checkpoints(store) if name <= newest)
    unfinished = {name for name in all_checkpoints(store) if name < newest} - set(done)
    for name in (*done[:-keep], *unfinished):
        _remove(store, name)
    return done[:-keep]


def _contents(
    model: nn.Module,
    tokenizer: Tokenizer | None,
    state: Mapping[str, Tensor] | None,
    progress: Mapping[str, Any],
    step: int,
) -> Iterator[tuple[str, Iterable[bytes | memoryview]]]:
    yield "config.json", [_config_json(model)]
    yield "model.safetensors", safetensors_file.chunks(safetensors_file.untied(model))
    if tokenizer is not None:
        yield "tokenizer.json", [tokenizer.to_json().encode()]
        yield "tokenizer_config.json", [_tokenizer_config(tokenizer)]
    if state is not None:
        yield "state.safetensors", safetensors_file.chunks(state)
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
    store: ObjectStore, key: str, content: Iterable[bytes | memoryview], stopped: Callable[[], bool]
) -> FileDigest:
    hasher, size = blake3(), 0

    def marked() -> Iterator[bytes | memoryview]:
        nonlocal size
        for chunk in content:
            if stopped():
                raise NotWanted(f"{key}: stopped after {size} bytes")
            hasher.update(chunk)
            size += len(chunk)
            yield chunk

    store.put(key, marked())
    return FileDigest(size, hasher.hexdigest())


def _remove(store: ObjectStore, name: str) -> None:
    store.delete(f"{name}/{MANIFEST}")
    for entry in store.list(name):
        store.delete(entry.key)
