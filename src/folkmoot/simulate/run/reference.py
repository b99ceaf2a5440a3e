"""A plain second opinion on what the machine decides about a round: slow, obvious, no numpy.

The audit compares the machine with it, so nothing here may call the code it checks.
"""

from collections.abc import Iterable
from hashlib import sha256

from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.coordinator.state import Coordinator, Round, Witness

GENESIS = sha256(b"the model that everyone initialises from the run's seed").digest()
_MASK = (1 << 64) - 1


def quorum(witnesses: int) -> int:
    """Two thirds, and always a majority."""
    return max(witnesses * 2 // 3, witnesses // 2 + 1)


def elected(state: Coordinator, round_: Round) -> int:
    here = len(state.epoch.clients) - len(round_.absent)
    return min(state.run.config.witness_nodes or 32, here)


def mask(spans: Iterable[Span]) -> int:
    """Samples as the bits of a number."""
    bits = 0
    for start, stop in ((span.start, span.stop) for span in spans):
        bits |= (1 << stop) - (1 << start)
    return bits


def filter_keys(seed: int, owner: int) -> list[int]:
    root = b"bloom" + seed.to_bytes(8, "little") + owner.to_bytes(8, "little")
    return [int.from_bytes(sha256(root + bytes([k])).digest()[:8], "little") for k in range(7)]


def contains(bits: int, size: int, keys: Iterable[int], item: bytes) -> bool:
    """Whether a Bloom filter holds an item."""
    for key in keys:
        for byte in item:
            key = ((key ^ byte) * 0x100000001B3) & _MASK
        if not bits >> (key % size) & 1:
            return False
    return True


def vote(state: Coordinator, by: Round, witness: Witness, place: int) -> bool:
    """Whether a witness of `by` says that the client at a place delivered."""
    bits = int.from_bytes(witness.participant_bloom, "little")
    size = len(witness.participant_bloom) * 8
    item = sha256(state.epoch.clients[place].id).digest()[:8]
    return contains(bits, size, filter_keys(by.seed, witness.proof.index), item)


def votes(state: Coordinator, by: Round, places: Iterable[int]) -> dict[int, int]:
    """For each place, how many witnesses of `by` say that its client delivered."""
    return {p: sum(vote(state, by, witness, p) for witness in by.witnesses) for p in places}


def screeners(by: Round, place: int) -> set[int]:
    """The roster indices of the witnesses that would not have a place's result learnt."""
    return {witness.proof.index for witness in by.witnesses if place in witness.screened}


def learn(model: bytes, commitments: Iterable[bytes]) -> bytes:
    """The toy model: its hash is a pure function of the results it learnt, in order."""
    results = b"".join(commitments)
    return sha256(model + results).digest() if results else model
