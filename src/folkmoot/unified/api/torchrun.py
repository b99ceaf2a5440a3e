"""A torchrun command, read: how many of what. Nothing is added to what it says.

Options about rendezvous and ports are left out: the job does that itself. An option that torchrun
does not have is refused, with the nearest that it has.
"""

import difflib
import re
import shlex
from typing import NamedTuple

_LAUNCHER = re.compile(r"(.*/)?torchrun|torch\.distributed\.(run|launch)")
# With a value; True for those that mean something here.
_OPTIONS = {
    "nnodes": True, "nproc-per-node": True, "max-restarts": True,
    "rdzv-backend": False, "rdzv-endpoint": False, "rdzv-id": False, "rdzv-conf": False,
    "monitor-interval": False, "start-method": False, "role": False, "log-dir": False,
    "redirects": False, "tee": False, "local-ranks-filter": False, "node-rank": False,
    "master-addr": False, "master-port": False, "local-addr": False, "logs-specs": False,
    "event-log-handler": False,
}  # fmt: skip
_FLAGS = ("standalone", "module", "no-python", "run-path")
_SHORT = {"-m": "module", "-r": "redirects", "-t": "tee"}


class Torchrun(NamedTuple):
    entry: str
    nnodes: str = "1"
    nproc_per_node: int = 1
    max_restarts: int | None = None


def read_torchrun(command: str) -> Torchrun:
    """ValueError says what of it cannot be taken over."""
    words = shlex.split(command)
    launcher = next((k for k, word in enumerate(words) if _LAUNCHER.fullmatch(word)), None)
    if launcher is None or launcher > 2:
        raise ValueError(f"{command!r} is no torchrun command")
    options, flags, rest = _options(words[launcher + 1 :])
    if not rest:
        raise ValueError(f"{command!r} names no script")
    if "no-python" in flags:
        raise ValueError("--no-python is not taken over: the workers of a job are Python")
    restarts = options.get("max-restarts")
    return Torchrun(
        entry=shlex.join(["-m", *rest] if "module" in flags else rest),
        nnodes=options.get("nnodes", "1"),
        nproc_per_node=_number("--nproc-per-node", options.get("nproc-per-node", "1")),
        max_restarts=None if restarts is None else _number("--max-restarts", restarts),
    )


def _options(words: list[str]) -> tuple[dict[str, str], set[str], list[str]]:
    options: dict[str, str] = {}
    flags: set[str] = set()
    while words and words[0].startswith("-"):
        word, _, value = words.pop(0).partition("=")
        name = _SHORT.get(word) or word.removeprefix("--").replace("_", "-")
        if name in _FLAGS:
            flags.add(name)
            continue
        if name not in _OPTIONS:
            close = difflib.get_close_matches(name, [*_OPTIONS, *_FLAGS], n=1)
            hint = f" (did you mean --{close[0]}?)" if close else ""
            raise ValueError(f"torchrun has no option {word!r}{hint}")
        if not value and not words:
            raise ValueError(f"{word} needs a value")
        options[name] = value or words.pop(0)
    return options, flags, words


def _number(option: str, value: str) -> int:
    if not value.isdecimal():
        raise ValueError(
            f"{option} {value}: say a number, since where it will run is not known yet"
        )
    return int(value)
