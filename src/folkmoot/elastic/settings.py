"""What a rank is told by its launcher: torchrun's variables, and ours for what torchrun has not.

RANK, WORLD_SIZE        which rank this is, and of how many
FOLKMOOT_STORE          the url of the store where the ranks meet
FOLKMOOT_JOB            the job's name in that store (else TORCHELASTIC_RUN_ID, else "job")
FOLKMOOT_RULES          a JSON object with names of `Rules`, for all ranks of the job
FOLKMOOT_LOG            a folder for event logs, a file for each rank
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

import msgspec

from folkmoot.core.iteration import Rules, Takeover

RANK, WORLD = "RANK", "WORLD_SIZE"
STORE, JOB, RULES, LOG = "FOLKMOOT_STORE", "FOLKMOOT_JOB", "FOLKMOOT_RULES", "FOLKMOOT_LOG"


class RuleOptions(TypedDict, total=False):
    """The names of `Rules`, besides `world`; times in milliseconds."""

    min_ranks: int
    heartbeat_interval: int
    heartbeat_timeout: int
    join_timeout: int
    straggler_timeout: int
    takeover: Takeover


def number_from(name: str, given: int | None, argument: str) -> int:
    if given is not None:
        return given
    text = os.environ.get(name, "")
    if not text.isdigit():
        said = f"is {text!r}" if text else "is not set"
        raise ValueError(
            f"{name} {said}: start with `folkmoot elastic run` or torchrun, or pass {argument}="
        )
    return int(text)


def store_from_environment() -> str:
    url = os.environ.get(STORE, "")
    if not url:
        raise ValueError(
            f"no store is named: start with `folkmoot elastic run`, set {STORE} to the url of one"
            " (`folkmoot store serve` starts one), or pass store="
        )
    return url


def job_from_environment() -> str:
    return os.environ.get(JOB) or os.environ.get("TORCHELASTIC_RUN_ID") or "job"


def rules_from(world: int, options: Mapping[str, object]) -> Rules:
    """What is passed counts, then the environment, then the defaults."""
    try:
        common = msgspec.json.decode(os.environ.get(RULES) or b"{}", type=dict[str, object])
        return msgspec.convert({**common, **options, "world": world}, Rules)
    except msgspec.MsgspecError as error:
        raise ValueError(f"the rules of the job cannot be used: {error}") from None


def log_from_environment(rank: int) -> Path | None:
    folder = os.environ.get(LOG)
    return Path(folder) / f"rank-{rank}.jsonl" if folder else None
