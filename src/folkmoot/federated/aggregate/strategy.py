"""What all strategies share: they are options and behaviour in one frozen struct.

A strategy decodes straight from the `[aggregation]` table of a federation's TOML, where `strategy`
names it. Most need no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import msgspec

from folkmoot.federated.aggregate import Closing
from folkmoot.federated.aggregate.checks import bad_layout
from folkmoot.federated.aggregate.linear import LinearCombination, Term, sum_layout
from folkmoot.federated.aggregate.spans import ArraySpan, CombineFailed, for_each_span, write_span
from folkmoot.federated.model_file.layout import BLOCK, Array, Layout, ModelSink

Figures = Mapping[str, float]
#: Elements that are summed at once. With fewer, two threads meet more often at the interpreter's
#: lock; with more, their sums and products in float64 are as large as a small model.
SUMMED = 2 * BLOCK


class Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="strategy"):
    """How updates are combined."""

    #: Whether `combine` may be given one update, the mean of all: secure aggregation has no other.
    needs_only_the_mean: ClassVar[bool] = False
    #: Whether each sum it makes spends privacy: sums are counted then.
    adds_noise: ClassVar[bool] = False
    #: Whether `combine` reads every update once, from its beginning to its end, and remembers
    #: nothing: then it may be begun while updates still come.
    reads_once: ClassVar[bool] = False

    def memory_layout(self, layout: Layout) -> Layout:
        """The arrays to remember between rounds of a model with `layout`; empty for most."""
        return {}

    def settings(self, round_: int, participant_id: str) -> Mapping[str, bool | int | float | str]:
        """What this participant's `train_round` gets as `config` in this round."""
        return {}

    def combine(self, closing: Closing) -> Figures:
        """Write the next global model to `closing.out`; answer figures for the event log.

        Raises `CombineFailed` (a ValueError) when what was read makes no model.
        """
        raise NotImplementedError


def common_layout(closing: Closing) -> Layout:
    """The layout of the model to write; every update must have it."""
    if not closing.updates:
        raise CombineFailed("no update was accepted, so there is nothing to combine")
    layout = (closing.reference or closing.updates[0].source).layout
    for update in closing.updates:
        expected = sum_layout(layout) if update.summed else layout
        if reason := bad_layout(update.source.layout, expected):
            raise CombineFailed(f"the update of {update.participant_id}: {reason}")
    return layout


def write_linear(layout: Layout, terms: Sequence[Term], divisor: float, out: ModelSink) -> None:
    """Write a linear combination of models as the next global model."""
    sum_ = partial(LinearCombination, terms, divisor, SUMMED)
    write_blocks(layout, sum_, out, SUMMED, reads=len(terms))


def write_blocks(
    layout: Layout,
    compute: Callable[[], Callable[[ArraySpan], Array]],
    out: ModelSink,
    block: int = BLOCK,
    reads: int = 1,
) -> None:
    """Write what `compute` (made once for each thread) gives for each span."""

    def worker() -> Callable[[ArraySpan], None]:
        values = compute()
        return lambda span: write_span(out, span, values(span))

    for_each_span(layout, worker, block, reads)


def require(condition: bool, sentence: str) -> None:
    """For options: raise what the decoder reports with the place in the file."""
    if not condition:
        raise ValueError(sentence)
