"""A Merkle root: leaves and nodes are hashed apart, and an odd one is paired with itself."""

from collections.abc import Sequence
from hashlib import sha256


def merkle_root(leaves: Sequence[bytes]) -> bytes:
    """The root of `leaves`, or 32 zero bytes when there are none."""
    if not leaves:
        return bytes(32)
    level = [sha256(b"\x00" + leaf).digest() for leaf in leaves]
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        level = [
            sha256(b"\x01" + left + right).digest()
            for left, right in zip(level[::2], level[1::2], strict=True)
        ]
    return level[0]
