"""Directions of toy results: sketches as a method would make them of real ones."""

from functools import lru_cache
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray

from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.client.screening import SUMS

# Parts of a client's own noise in a result, for one part of what all of a round have in common:
# honest results have a cosine of about 0.2.
NOISE = 2.0


def direction(toward: str, result: Result) -> bytes:
    """The sketch of a result that goes where `all` of a round go, `against` them, or `nowhere`."""
    who, turn = result.sender, (result.epoch, result.height)
    common = {"all": 1.0, "against": -1.0, "nowhere": 0.0}[toward]
    sums = common * _normal(b"all", turn) + NOISE * _normal(who, turn)
    scaled = np.rint(sums * (32767 / np.abs(sums).max()))
    return bytes(np.float32(1).tobytes() + scaled.astype("<i2").tobytes())


@lru_cache(64)
def _normal(name: bytes, turn: tuple[int, int]) -> NDArray[np.float64]:
    seed = sha256(name + repr(turn).encode()).digest()
    return np.random.default_rng(int.from_bytes(seed[:8], "big")).standard_normal(SUMS)
