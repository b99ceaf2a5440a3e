"""Who makes the next record: everybody may, and an order spares them the race.

The members of the epoch, or those who wait for one, stand in a ring; where it begins is a hash of
the record's number, so the work goes round. The first makes a record as soon as a letter comes or a
tick is due. The others wait a little longer each, and after that do it themselves: if the first
is dead, slow or unwilling, the run loses a fraction of a second.
"""

import random
from bisect import bisect_left
from hashlib import sha256

from folkmoot.core.coordinator import Coordinator, Phase

# How many wait for letters; the rest are woken by records.
ATTENTIVE = 3
# Seconds by which each waits longer than the one before, and the longest wait.
STAGGER, LONGEST = 0.03, 0.5
# Seconds by which a record is put off for each member, and at most: about what its delivery costs.
PACE, LONGEST_PACE = 500e-6, 0.1
# And at least, while letters are to come without which a round cannot end.
ROUND_PACE = 0.01
# Seconds between two looks at the mailbox of those who do not wait for letters: for each member, so
# that many together look as often as a few do; at least; and at most.
LOOK, SHORTEST_LOOK, LONGEST_LOOK = 0.01, 0.5, 2.5


def rank(state: Coordinator, version: int, identity: bytes) -> int:
    """How many come before `identity` when the record after `version` is made."""
    if state.epoch.clients:
        place, absent = state.find(identity), state.epoch.absent
        size = state.active
        at = None if place is None or place in absent else place - bisect_left(absent, place)
    else:
        size = len(state.pending)
        known = state.pending.get(identity) is not None
        at = sum(other.id < identity for other in state.pending) if known else None
    if not size:
        return 0
    return size if at is None else (at - _start(version, size)) % size


def hold(rank: int) -> float:
    """Seconds for which those who come before are left to do it."""
    return min(rank * STAGGER, LONGEST)


def pace(state: Coordinator, record: float = 0.0) -> float:
    """Seconds in which letters gather, so that one record carries many.

    As long as a `record` takes to write, if that is more: what comes meanwhile waits for the next.
    """
    least = ROUND_PACE if expected(state) else 0.0
    return min(max(_size(state) * PACE, record, least), LONGEST_PACE)


def expected(state: Coordinator) -> int:
    """How many letters end the round when they are there; 0 if none do."""
    if state.phase not in (Phase.RoundTrain, Phase.RoundWitness):
        return 0
    heard = len(state.round.witnesses)
    return max(state.elected(state.round) - heard - len(state.epoch.leaving), 0)


def look(state: Coordinator) -> float:
    """The longest time for which one who does not wait for letters leaves the mailbox alone."""
    return min(max(_size(state) * LOOK, SHORTEST_LOOK), LONGEST_LOOK) * random.uniform(0.5, 1.0)


def _size(state: Coordinator) -> int:
    return state.active or len(state.pending)


def _start(version: int, size: int) -> int:
    return int.from_bytes(sha256(version.to_bytes(8, "little")).digest()[:8], "little") % size
