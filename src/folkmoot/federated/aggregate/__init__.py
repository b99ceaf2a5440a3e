"""How updates become the next global model.

The coordinator keeps every update in a local file (the folder bucket's own file, or a private
copy of a remote object), so a strategy is a function from files to files:

- An update is checked once (`checks.py`), when it lands, in any order and on any thread, block by
  block. Nothing is kept: after a crash the same bytes are checked again, and get the same answer.
- `combine` runs when the round closes. It gets the accepted updates **in the order of their
  participant ids**, reads them block by block, and writes the next model. The result depends on
  the files and the arguments alone, never on who arrived first: a round that was interrupted by a
  crash ends with the same bits as one that was not. Memory is a block per update at the most.

What a strategy remembers between rounds (momentum, variance) is a model too: `memory_layout` says
which arrays, `combine` reads the last ones from `memory` and writes the next ones to
`memory_out`, and the coordinator keeps the file beside its journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from folkmoot.federated.model_file.layout import ModelSink, ModelSource


@dataclass(frozen=True)
class ModelUpdate:
    """What one participant delivered."""

    participant_id: str
    #: Number of samples it trained on; 0 only in the initial round, where all weigh the same.
    samples: int
    source: ModelSource
    #: How many global models were made since the one this update started from (0 but for FedBuff).
    staleness: int = 0
    #: The global model it started from; None in the initial round.
    base: ModelSource | None = None
    #: Of how many updates it is the sum, if an aggregator made it, and over how many samples; then
    #: `source` is Σ samples · model in float64, and strategies see it through `linear.mean` only.
    participants: int = 0
    summed: int = 0


@dataclass(frozen=True)
class Closing:
    """A round that closes: what there is, and where the next model goes."""

    #: The round's global model; None in the initial round.
    reference: ModelSource | None
    #: In the order of their participant ids.
    updates: Sequence[ModelUpdate]
    #: What the strategy remembers; None the first time.
    memory: ModelSource | None
    #: The next global model, with the layout of `reference`.
    out: ModelSink
    #: What it will remember, with its `memory_layout`; None when that is empty.
    memory_out: ModelSink | None
    #: 32 secret bytes that belong to this sum.
    seed: bytes
    #: How many noisy sums were made so far, this one included; 0 where nobody counts them.
    releases: int = 0
    #: Whether `updates` is the sum of masked ones, clipped and made noisy by their members.
    summed: bool = False
