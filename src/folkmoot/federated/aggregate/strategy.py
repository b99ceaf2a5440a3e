"""What all strategies share: they are options and behaviour in one frozen struct.

A strategy decodes straight from the `[aggregation]` table of a federation's TOML, where `strategy`
names it, and is then an `Aggregator`. Most need no memory and accept what passes the common
checks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import msgspec

from folkmoot.federated.aggregate import Closing, ModelUpdate, Verdict
from folkmoot.federated.aggregate.checks import bad_layout, check_update
from folkmoot.federated.aggregate.linear import LinearCombination, Term
from folkmoot.federated.aggregate.spans import ArraySpan, CombineFailed, Output, for_each_span
from folkmoot.federated.model_file.layout import BLOCK, Array, Layout, ModelSink

Figures = Mapping[str, float]
#: Elements that are summed at once. Their float64 sums leave the second-level cache, and still two
#: threads are done a fifth sooner: they meet less often at the interpreter's lock.
SUMMED = 4 * BLOCK


class Strategy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="strategy"):
    """The part of an `Aggregator` that most strategies have in common."""

    #: Whether `combine` may be given one update, the mean of all: secure aggregation has no other.
    needs_only_the_mean: ClassVar[bool] = False

    def check(self, update: ModelUpdate, layout: Layout | None) -> Verdict:
        return check_update(update, layout)

    def memory_layout(self, layout: Layout) -> Layout:
        return {}


def common_layout(closing: Closing) -> Layout:
    """The layout of the model to write; every update must have it."""
    if not closing.updates:
        raise CombineFailed("no update was accepted, so there is nothing to combine")
    layout = (closing.reference or closing.updates[0].source).layout
    for update in closing.updates:
        if reason := bad_layout(update.source.layout, layout):
            raise CombineFailed(f"the update of {update.participant_id}: {reason}")
    return layout


def write_linear(layout: Layout, terms: Sequence[Term], divisor: float, out: ModelSink) -> None:
    """Write a linear combination of models as the next global model."""
    write_blocks(layout, lambda: LinearCombination(terms, divisor, SUMMED), out, SUMMED)


def write_blocks(
    layout: Layout,
    compute: Callable[[], Callable[[ArraySpan], Array]],
    out: ModelSink,
    block: int = BLOCK,
) -> None:
    """Write what `compute` (made once for each thread) gives for each span."""

    def worker() -> Callable[[ArraySpan], None]:
        values, output = compute(), Output(out)
        return lambda span: output.write(span, values(span))

    for_each_span(layout, worker, block)


def require(condition: bool, sentence: str) -> None:
    """For options: raise what the decoder reports with the place in the file."""
    if not condition:
        raise ValueError(sentence)
