"""The seed of a round where no server draws one: from the clock of a chain."""

from hashlib import sha256


def clock_seed(timestamp: int, slot: int) -> int:
    """64 bits from a chain's time in seconds and its slot.

    Anyone can check them. Whoever ticks may pick the slot: good enough to deal out work, no secret.
    """
    clock = timestamp.to_bytes(8, "little", signed=True) + slot.to_bytes(8, "little")
    return int.from_bytes(sha256(clock).digest()[:8], "little")
