"""Which places a run may use on a client's machine: the run names them, the client's owner decides.

Without being asked, a run may use what lies in the current folder and below it, hidden files and
folders excepted, and what its own server hands out. Everything else (other folders, urls, for which
the owner's credentials would be used) needs the owner's word (`trusted`), or another place that is
used instead (`mapped`).
"""

import os
import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from folkmoot.client.served_data import SCHEME
from folkmoot.core.coordinator import Run
from folkmoot.core.data_config import (
    MixtureConfig,
    ParquetFiles,
    RemoteTokens,
    SourceConfig,
    TextFiles,
    TokenFiles,
)
from folkmoot.core.model_config import HuggingFaceConfig
from folkmoot.host.places import below, is_url

ALL = "all"


class NotTrusted(ValueError):
    """A run wants to use places that nobody agreed to; the message says which, and what to do."""


class Places:
    def __init__(
        self, trusted: Iterable[str] = (), mapped: Mapping[str, str] | None = None
    ) -> None:
        self._trusted = tuple(trusted)
        self._mapped = dict(mapped or {})

    def ours(self, name: str) -> str:
        """The place to use when the run says `name`."""
        for theirs, ours in self._mapped.items():
            rest = below(name, theirs)
            if rest is not None:
                return ours.rstrip("/") + rest if rest else ours
        if not self._may_use(name):
            raise NotTrusted(f"{name} is a place that the owner of this client did not agree to")
        return name

    def localised(self, run: Run) -> Run:
        """The run with our places for what is read at joining; raises `NotTrusted` for all at once.

        Where checkpoints are kept stays as the run says it: others are told of it.
        """
        unknown: dict[str, None] = {}

        def note(name: str) -> str:
            try:
                return self.ours(name)
            except NotTrusted:
                unknown[name] = None
                return name

        model = run.model
        for stored in (model.checkpoint, posixpath.dirname(model.start)):
            if stored:
                note(stored)
        changed = replace(
            model,
            data=_source(model.data, note) if model.data else None,
            held_out=_source(model.held_out, note) if model.held_out else None,
            tokenizer=_tokenizer(model.tokenizer, note),
            architecture=_architecture(model.architecture, note),
        )
        if unknown:
            wanted = " ".join(f"--trust {name}" for name in unknown)
            raise NotTrusted(
                f"run '{run.run_id}' wants to use {', '.join(unknown)} on this machine, beyond the"
                f" current folder. If you agree, join with {wanted}; or name places of yours to use"
                " instead, with --map THEIRS=OURS"
            )
        return replace(run, model=changed)

    def _may_use(self, name: str) -> bool:
        if ALL in self._trusted or name in self._trusted or _is_plain_below_here(name):
            return True
        return any(below(name, place) is not None for place in self._trusted)


#: For a run whose owner is the client's own.
ANYWHERE = Places((ALL,))


def _is_plain_below_here(name: str) -> bool:
    if name.startswith(SCHEME):
        return True
    parts = name.split("/")
    here = not is_url(name) and not os.path.isabs(name) and "\\" not in name and "\0" not in name
    return here and not any(part.startswith(".") and part != "." for part in parts)


def _tokenizer(name: str, ours: Callable[[str], str]) -> str:
    return name if name in ("", "bytes") else ours(name)


def _architecture(config: Any, ours: Callable[[str], str]) -> Any:
    if isinstance(config, HuggingFaceConfig) and config.path:
        return replace(config, path=ours(config.path))
    return config


def _source(source: SourceConfig, ours: Callable[[str], str]) -> SourceConfig:
    match source:
        case MixtureConfig(parts):
            local = (replace(part, source=_source(part.source, ours)) for part in parts)
            return MixtureConfig(tuple(local))
        case RemoteTokens(urls):
            return replace(source, urls=tuple(map(ours, urls)))
        case TextFiles(paths, tokenizer):
            local_paths = tuple(map(ours, paths))
            return replace(source, paths=local_paths, tokenizer=_tokenizer(tokenizer, ours))
        case TokenFiles(paths) | ParquetFiles(paths):
            return replace(source, paths=tuple(map(ours, paths)))
