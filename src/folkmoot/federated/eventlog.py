"""The coordinator's event log: one JSON object a line, typed, in the order things happened.

Each line has `time` (milliseconds), `type` (the event's name) and the event's own fields.
"""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

logger = logging.getLogger(__name__)
_encoder = msgspec.json.Encoder()


class Started(msgspec.Struct, frozen=True, tag=True):
    run_id: str
    phase: str
    round: int
    resumed: bool
    address: str


class Aggregated(msgspec.Struct, frozen=True, tag=True):
    """A round's updates became the next global model."""

    round: int
    updates: int
    seconds: float
    digest: str
    figures: dict[str, float]


class AggregationFailed(msgspec.Struct, frozen=True, tag=True):
    round: int
    reason: str
    retry_in: float


class UpdateRefused(msgspec.Struct, frozen=True, tag=True):
    """An update was not counted."""

    id: str
    round: int
    reason: str


class Reported(msgspec.Struct, frozen=True, tag=True):
    """What a participant reported with its update."""

    id: str
    round: int
    samples: int
    metrics: dict[str, Any]
    history: dict[str, list[float]]


class ReportRefused(msgspec.Struct, frozen=True, tag=True):
    """Metrics that cannot be read never cost an update."""

    id: str
    round: int
    reason: str


class Pruned(msgspec.Struct, frozen=True, tag=True):
    before_round: int
    objects: int


class Stopped(msgspec.Struct, frozen=True, tag=True):
    phase: str
    round: int


class EventLog:
    """Appends to a file, line by line; each line is handed to the system at once."""

    def __init__(self, path: Path | None, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._fd = -1
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, event: msgspec.Struct) -> None:
        if self._fd >= 0:
            line = {"time": self._clock(), **msgspec.to_builtins(event)}
            try:
                os.write(self._fd, _encoder.encode(line) + b"\n")
            except OSError as error:
                # A full disk must not stop a round whose journal still has room.
                logger.warning("the event log misses %s: %s", line["type"], error)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
