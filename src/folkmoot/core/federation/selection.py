"""Who takes part in a round: three controllers, each an order in which participants are taken.

The order of a round is fixed by its number and its seed, so a drop-out is replaced by the
next in the same order, and whoever knows the seed can check a selection.
"""

from collections.abc import Iterable
from hashlib import sha256

from folkmoot.core.federation.config import Controller


def in_order(controller: Controller, ids: Iterable[str], round_: int, seed: int) -> list[str]:
    """`ids` in the order in which the controller takes them in this round."""
    if controller == "random":
        prefix = seed.to_bytes(8, "little") + round_.to_bytes(8, "little", signed=True)
        return sorted(ids, key=lambda one: sha256(prefix + one.encode()).digest())
    return sorted(ids)


def take(
    controller: Controller, ids: Iterable[str], count: int, round_: int, seed: int
) -> tuple[str, ...]:
    """`count` of `ids`, none twice; the controller "all" takes everyone."""
    ordered = in_order(controller, ids, round_, seed)
    return tuple(ordered if controller == "all" else ordered[: max(count, 0)])
