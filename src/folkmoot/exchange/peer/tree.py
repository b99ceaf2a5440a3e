"""The tree a message travels down, equal for everybody who knows the members.

The author is the root; the others follow in an order drawn from author and round, and the member
at place p has the members at places p·fanout+1 … p·fanout+fanout as children. Each author and
round has another tree, so no member carries or withholds everything.
"""

from collections.abc import Sequence
from functools import lru_cache

from blake3 import blake3


@lru_cache(maxsize=256)
def _order(origin: bytes, round_: int, members: tuple[bytes, ...]) -> tuple[bytes, ...]:
    salt = origin + round_.to_bytes(8, "little")
    others = [member for member in members if member != origin]
    return (origin, *sorted(others, key=lambda member: blake3(salt + member).digest()))


def children(
    member: bytes, origin: bytes, round_: int, members: Sequence[bytes], fanout: int
) -> list[bytes]:
    """To whom `member` passes on a message of `origin`; nobody, when it is not a member."""
    order = _order(origin, round_, tuple(members))
    if member not in order:
        return []
    first = order.index(member) * fanout + 1
    return list(order[first : first + fanout])
