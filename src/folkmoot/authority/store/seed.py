"""The seed of what begins next, in a run that nobody serves.

    seed = H(genesis, epoch, phase, height of the newest round, its seed)

Nothing in it is up to whoever makes a record: not the time, not which letters are in it or in what
order, not how many records were made before. All chains of records that reach the same round of the
same epoch reach it with the same seed, so leaving letters out, making records early or late, or
trying again changes nothing.

The price is that seeds can be foreseen from the genesis on. Someone who may join under any key can
look for one that is a witness more often than others. Where that matters, give the run an
allow-list.
"""

from hashlib import sha256

from folkmoot.core.coordinator import Coordinator
from folkmoot.host.signing import framed


def next_seed(genesis: bytes, state: Coordinator) -> int:
    """64 bits for an event that is applied to `state`."""
    rounds = state.epoch.rounds
    height, seed = (rounds[-1].height, rounds[-1].seed) if rounds else (-1, 0)
    counted = (number.to_bytes(9, "little", signed=True) for number in (height, seed))
    epoch = state.epoch_number.to_bytes(8, "little")
    parts = framed(b"folkmoot seed 1", genesis, epoch, state.phase.encode(), *counted)
    return int.from_bytes(sha256(parts).digest()[:8], "little")
