"""States that no coordinator comes to, and with which a client could not compute.

Whoever tells a client of its run may lie, and then the client waits or works in vain. It must not
stumble: places are those of clients, samples are counted upwards, and no round trains more of them
than a batch of the run has.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from folkmoot.core.bloom import bloom_bits
from folkmoot.core.coordinator.assignment import Share, total
from folkmoot.core.coordinator.config import CLIENTS_MAX
from folkmoot.core.coordinator.receive import IN_ROUND
from folkmoot.core.coordinator.state import STORED_ROUNDS, Coordinator, Phase, Round
from folkmoot.core.quorum import MAX_WITNESSES

# What seeds are counted with, steps in a commitment, and samples in memory.
SEED_MAX, STEP_MAX, SAMPLE_MAX = 2**64 - 1, 2**32 - 1, 2**62
# What results are told with: epochs and heights, and the rounds that these make together.
NUMBER_MAX = 2**40 - 1


AFTER_ROUNDS = (*IN_ROUND, Phase.Cooldown)


def impossible(state: Coordinator) -> str:
    """What is wrong with a state that a stranger told, or ""."""
    return next(_wrong(state), "")


def _wrong(state: Coordinator) -> Iterator[str]:
    epoch, count = state.epoch, len(state.epoch.clients)
    if not 0 <= state.epoch_number <= NUMBER_MAX or not 0 <= state.progress.step <= STEP_MAX:
        yield "its epoch or step cannot be"
    waiting = sum(map(len, state.pending.shards))
    if max(count, waiting) > CLIENTS_MAX:
        yield f"more than {CLIENTS_MAX:,} clients"
    if len(epoch.rounds) > STORED_ROUNDS:
        yield "more rounds than a state tells of"
    if any(other.height != one.height + 1 for one, other in pairwise(epoch.rounds)):
        yield "its rounds do not follow each other"
    if any(not 0 <= one.height <= NUMBER_MAX for one in epoch.rounds):
        yield "a round's height cannot be"
    if not epoch.rounds and state.phase in AFTER_ROUNDS:
        yield "a phase of a round, and no round"
    if not _places(epoch.absent, count):
        yield "a client is absent that is not there"
    elif not all(epoch.clients[place].left for place in epoch.absent):
        yield "a client is absent that did not leave"
    if epoch.judged and not _places(epoch.judged.unhealthy + epoch.judged.screened, count, False):
        yield "a client is judged that is not there"
    if not _places([place for place, _ in epoch.leaving], count, False):
        yield "a client leaves that is not there"
    saving = epoch.saving.election if epoch.saving else None
    for election in (epoch.warmup, epoch.cooldown, saving, *epoch.rounds):
        if election is not None:
            yield from _wrong_round(state, election)
    if not state.checkpoint.location.isprintable():
        yield "the place of its checkpoint cannot be shown"
    if not all(_forward(owed) for owed in (state.progress.owed, state.checkpoint.progress.owed)):
        yield "samples are owed that cannot be"


def _wrong_round(state: Coordinator, told: Round) -> Iterator[str]:
    count, config = len(state.epoch.clients), state.run.config
    if not 0 <= told.seed <= SEED_MAX or not 0 <= told.step <= STEP_MAX:
        yield "a round's seed or step cannot be"
    if not _places(told.absent, count) or not _places(told.void, count, False):
        yield "a round without a client that is not there"
    elif state.active and not state.roster_size(told):
        yield "a round without anybody"
    elif told.weights and len(told.weights) != 2 * state.roster_size(told):
        yield "a round weighs others than its clients"
    if not _forward(told.spans):
        yield "a round has samples that cannot be"
    # Between rounds the owner may have made batches smaller.
    elif state.phase in IN_ROUND and total(told.spans) > config.batch_size_end:
        yield "a round has more samples than a batch"
    if len(told.witnesses) > MAX_WITNESSES:
        yield "a round has more witnesses than are elected"
    size = bloom_bits(count) // 8
    for witness in told.witnesses:
        if {len(witness.participant_bloom), len(witness.broadcast_bloom)} != {size}:
            yield "a witness's filters do not have their size"
        if not 0 <= witness.proof.index < count:
            yield "a witness is not there"


def _places(told: Sequence[int], count: int, in_order: bool = True) -> bool:
    """Whether these are places of clients, and, where that counts, each once and in order."""
    if in_order and any(one >= other for one, other in pairwise(told)):
        return False
    return all(0 <= place < count for place in told)


def _forward(spans: Share) -> bool:
    return all(0 <= span.start <= span.stop <= SAMPLE_MAX for span in spans)
