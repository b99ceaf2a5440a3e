"""What models are worth: what participants find, what the owner finds, and the best one kept.

Losses are in the journal (`core.federation`), so which model is the best survives every crash;
other metrics are for people, and only in the event log.
"""

from __future__ import annotations

import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from folkmoot.core.config import Broken
from folkmoot.core.federation.evaluation import MOST_LOSS
from folkmoot.core.federation.state import Evaluation
from folkmoot.federated.coordinator import events
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.participant.participant import as_given
from folkmoot.host.named_code import load_code

MOST_SAMPLES = 2**31 - 1
Metrics = dict[str, float]


class EvaluationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`[evaluation]`: who says what a global model is worth."""

    # Every how many rounds participants evaluate the model they are given; 0 asks nobody.
    every: int = 1
    # module:function of the owner's own, called with the weights of every new model: its loss, or
    # its loss and a mapping of metrics. What it says decides which model is the best.
    central: str = ""

    def rules(self) -> Iterator[Broken]:
        if not 0 <= self.every < 2**31:
            yield Broken("every", "must be 0 (never) or more")
        if self.central and ":" not in self.central:
            yield Broken("central", "must be module:function")

    def asks_in(self, round_: int) -> bool:
        return self.every > 0 and round_ % self.every == 0


def told_evaluation(told: Any) -> tuple[Evaluation, Metrics]:
    """What a participant says it found; ValueError when that makes no sense."""
    if not abs(told.loss) <= MOST_LOSS:
        raise ValueError(f"a loss of {told.loss}; expected a number up to {MOST_LOSS:g}")
    if not 1 <= told.samples <= MOST_SAMPLES:
        raise ValueError(f"evaluated on {told.samples} samples; expected 1 to {MOST_SAMPLES}")
    metrics = msgspec.json.decode(told.metrics or "{}", type=Metrics)
    return Evaluation(told.loss, told.samples), metrics


class ReportedMetrics:
    """The metrics that came with a round's evaluations, until its model is written."""

    def __init__(self) -> None:
        self._told: dict[int, list[tuple[int, Metrics]]] = defaultdict(list)

    def add(self, round_: int, samples: int, metrics: Metrics) -> None:
        self._told[round_].append((samples, metrics))

    def summary(self, round_: int) -> events.EvaluationSummary | None:
        """The means, weighted by samples, of what was told of a round's model; forgotten then."""
        told = self._told.pop(round_, [])
        for older in [one for one in self._told if one < round_]:
            del self._told[older]
        if not told:
            return None
        names = sorted({name for _, metrics in told for name in metrics})
        means = {name: _mean([(n, m[name]) for n, m in told if name in m]) for name in names}
        samples = sum(count for count, _ in told)
        return events.EvaluationSummary(round_, len(told), samples, means)


def _mean(values: list[tuple[int, float]]) -> float:
    total = math.fsum(count * value for count, value in values)
    return total / math.fsum(count for count, _ in values)


class CentralEvaluation:
    """The owner's own function."""

    def __init__(self, name: str) -> None:
        self._function: Callable[[Any], Any] = load_code(name)

    def __call__(self, path: Path) -> tuple[float, Mapping[str, Any]]:
        """Loss and metrics of the model at `path`. Blocks; what the function raises is raised."""
        with ModelFile(path) as model:
            found = self._function(as_given(model.arrays()))
        loss, metrics = found if isinstance(found, tuple) else (found, {})
        if not abs(float(loss)) <= MOST_LOSS:
            raise ValueError(f"[evaluation] central returned a loss of {loss}")
        return float(loss), {name: float(value) for name, value in metrics.items()}


def keep_best(model: Path, folder: Path, round_: int) -> None:
    """Keep a global model as `best/<round>.safetensors`, and no other; it is linked, not copied."""
    kept = folder / "best" / f"{round_}.safetensors"
    kept.parent.mkdir(exist_ok=True)
    if not kept.exists():
        # A file with a second name is never written over: see `reopened`.
        os.link(model, kept)
    for other in kept.parent.iterdir():
        if other != kept:
            other.unlink()
