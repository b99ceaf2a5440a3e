"""Who does what in a round, computed by everyone from the round's seed and provable to anyone.

`CommitteeSelection` deals an index (a client's place in the round's roster) a position under a
salt: the lowest positions are the witnesses, or the checkpointers of a cooldown. Salts and hashes
are those of the public design, so positions agree with it byte for byte.
"""

from enum import StrEnum
from functools import cached_property
from hashlib import sha256

import msgspec
import numpy as np
from numpy.typing import NDArray

from folkmoot.core.quorum import MAX_WITNESSES
from folkmoot.core.shuffle import swap_or_not, swap_or_not_all, swap_or_not_few

COMMITTEE_SALT = b"committee"
WITNESS_SALT = b"witness"
COOLDOWN_SALT = b"cooldown"
# Up to here all positions at once are cheaper than one for each witness.
FEW = 32


class Committee(StrEnum):
    TieBreaker = "TieBreaker"
    Verifier = "Verifier"
    Trainer = "Trainer"


class WitnessProof(msgspec.Struct, frozen=True, array_like=True):
    """A client's claim about its place among the witnesses."""

    position: int
    index: int
    witness: bool


class CommitteeProof(msgspec.Struct, frozen=True, array_like=True):
    """A client's claim about its committee."""

    committee: Committee
    position: int
    index: int


class CommitteeSelection:
    """The roles of `total` clients in the round with `seed`."""

    def __init__(
        self,
        tie_breaker_nodes: int,
        witness_nodes: int,
        verification_percent: int,
        total: int,
        seed: int,
    ) -> None:
        if total < tie_breaker_nodes:
            raise ValueError(f"{tie_breaker_nodes} tie breakers among {total} clients")
        if witness_nodes and total < witness_nodes:
            raise ValueError(f"{witness_nodes} witnesses among {total} clients")
        if not 0 <= verification_percent <= 100:
            raise ValueError(f"verification_percent is {verification_percent}, not 0 to 100")
        self.total = total
        self.tie_breakers = tie_breaker_nodes
        self.verifiers = (total - tie_breaker_nodes) * verification_percent // 100
        self.witnesses = witness_nodes or min(total, MAX_WITNESSES)
        self.seed = sha256(seed.to_bytes(8, "little")).digest()

    def get_witness(self, index: int) -> WitnessProof:
        position = _position(index, self.total, self._salted(WITNESS_SALT))
        return WitnessProof(position, index, position < self.witnesses)

    def verify_witness(self, proof: WitnessProof) -> bool:
        return 0 <= proof.index < self.total and self.get_witness(proof.index) == proof

    def get_committee(self, index: int) -> CommitteeProof:
        position = _position(index, self.total, self._salted(COMMITTEE_SALT))
        return CommitteeProof(self._committee(position), position, index)

    @cached_property
    def witness_positions(self) -> NDArray[np.int64]:
        """Every index's position among the witnesses, at once."""
        return swap_or_not_all(self.total, self._salted(WITNESS_SALT))

    def witness_indices(self) -> list[int]:
        """The elected witnesses, by index."""
        if self.total <= FEW:
            return [i for i in range(self.total) if self.get_witness(i).witness]
        return [int(i) for i in np.flatnonzero(self.witness_positions < self.witnesses)]

    def _committee(self, position: int) -> Committee:
        if position < self.tie_breakers:
            return Committee.TieBreaker
        if position < self.tie_breakers + self.verifiers:
            return Committee.Verifier
        return Committee.Trainer

    def _salted(self, salt: bytes) -> bytes:
        return sha256(self.seed + salt).digest()


def checkpointers(total: int) -> int:
    """How many of `total` clients are elected to store the model: a third, and at least one."""
    return max(1, total // 3)


def checkpointer_position(index: int, total: int, seed: int) -> int:
    """A client is a checkpointer when its position is below `checkpointers(total)`."""
    return _position(index, total, _cooldown_seed(seed))


def checkpointer_positions(total: int, seed: int) -> NDArray[np.int64]:
    """`checkpointer_position` of every index, at once."""
    return swap_or_not_all(total, _cooldown_seed(seed))


def _cooldown_seed(seed: int) -> bytes:
    # The public design hashes the seed once more here than for witnesses.
    inner = sha256(sha256(seed.to_bytes(8, "little")).digest()).digest()
    return sha256(inner + COOLDOWN_SALT).digest()


def _position(index: int, total: int, seed: bytes) -> int:
    if total <= FEW and 0 <= index < total:
        return swap_or_not_few(total, seed)[index]
    return swap_or_not(index, total, seed)


def is_checkpointer(index: int, total: int, seed: int) -> bool:
    if not 0 <= index < total:
        return False
    return checkpointer_position(index, total, seed) < checkpointers(total)
