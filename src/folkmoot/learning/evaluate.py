"""Held-out loss and perplexity, a slice at a time, to fill a round's slack.

`Evaluation` is a cursor: `work(n)` scores the next n sequences and returns at once; the result so
far is always there. Weights must not change between its first and last slice; when they did,
start a new one.
"""

import math
from collections.abc import Iterator

import msgspec
import torch
from torch import nn

from folkmoot.learning.data import Samples
from folkmoot.learning.gradients import Tokens, as_tensor, summed_loss
from folkmoot.learning.models import Precision


class Score(msgspec.Struct, frozen=True):
    """Mean cross-entropy per token, in nats, over the sequences scored so far."""

    loss: float
    tokens: int
    sequences: int

    @property
    def perplexity(self) -> float:
        return math.exp(self.loss) if self.loss < 700 else math.inf


class Evaluation:
    def __init__(
        self, model: nn.Module, data: Samples, sequences: int = 0, precision: Precision = "fp32"
    ) -> None:
        """Score the first `sequences` of `data` (0: all), so that scores can be compared."""
        self.model, self.data, self.precision = model, data, precision
        self.total = min(sequences or data.count, data.count)
        self.device = next(model.parameters()).device
        self._next = 0
        self._loss = 0.0
        self._tokens = 0

    @property
    def done(self) -> bool:
        return self._next >= self.total

    @property
    def score(self) -> Score:
        loss = self._loss / self._tokens if self._tokens else math.nan
        return Score(loss, self._tokens, self._next)

    def work(self, sequences: int = 8) -> Score:
        """Score some more; the model's mode and gradients are left as they were."""
        ids = range(self._next, min(self._next + max(1, sequences), self.total))
        if len(ids):
            tokens_BT1 = self.data.samples(ids)
            self._loss += self._summed(tokens_BT1)
            self._tokens += tokens_BT1[:, 1:].size
            self._next = ids.stop
        return self.score

    def slices(self, sequences: int = 8) -> Iterator[Score]:
        """One score a slice until done, for a caller that stops when its time is up."""
        while not self.done:
            yield self.work(sequences)

    def finish(self, sequences: int = 8) -> Score:
        while not self.done:
            self.work(sequences)
        return self.score

    @torch.no_grad()
    def _summed(self, tokens_BT1: Tokens) -> float:
        training = self.model.training
        self.model.eval()
        try:
            batch = as_tensor(tokens_BT1, self.device)
            return float(summed_loss(self.model, batch, self.precision))
        finally:
            self.model.train(training)
