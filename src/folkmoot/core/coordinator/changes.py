"""What an owner changes about a run that exists, and when that may be.

- Who must be there, how long things may take and how much is trained concerns only whoever keeps
  the run: it may change at any time, and counts from the next decision on.
- What members compute with (data, method, learning rate, witnesses) they must change together:
  between two epochs, when nobody is in the middle of a round.
- What the model is made of, and how its samples are numbered, stays once it was trained.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from folkmoot.core.coordinator.config import Run


class When(StrEnum):
    """From which moment on a key may have another value; a later one is stricter."""

    AnyTime = "at any time"
    BetweenEpochs = "when the run is paused"
    BeforeTraining = "before anything was trained"
    Never = "never"


class Change(NamedTuple):
    key: str  # as in the file: model.lr.base_lr
    before: Any
    after: Any

    @property
    def when(self) -> When:
        if self.key == METHOD:
            return When.BeforeTraining  # another kind of method keeps other state
        found = (when for part, when in _WHEN if f"{self.key}.".startswith(f"{part}."))
        return next(found, When.AnyTime)

    def __str__(self) -> str:
        return f"{self.key}: {_written(self.before)} -> {_written(self.after)}"


METHOD = "model.method"
_WHEN = (
    ("run_id", When.Never),
    ("config.delay", When.BetweenEpochs),
    ("config.witness_nodes", When.BetweenEpochs),
    ("config.verification_percent", When.BetweenEpochs),
    ("model.architecture", When.BeforeTraining),
    ("model.start", When.BeforeTraining),
    ("model.seed", When.BeforeTraining),
    ("model.max_seq_len", When.BeforeTraining),
    ("model", When.BetweenEpochs),
)


def changes(old: Run, new: Run) -> tuple[Change, ...]:
    """What differs, key by key."""
    return tuple(_differences("", old, new))


def same_work(old: Run, new: Run) -> bool:
    """Whether a member may go on with what it built for `old`."""
    return (old.model, old.config.delay) == (new.model, new.config.delay)


def _differences(key: str, old: Any, new: Any) -> Iterator[Change]:
    if isinstance(old, msgspec.Struct) and type(old) is type(new):
        for name in old.__struct_fields__:
            inner = f"{key}.{name}" if key else name
            yield from _differences(inner, getattr(old, name), getattr(new, name))
    elif old != new:
        yield Change(key, old, new)


def _written(value: Any) -> str:
    return "not set" if value is None else msgspec.json.encode(value).decode()
