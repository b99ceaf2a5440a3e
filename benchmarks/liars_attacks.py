"""What liars send, attack by attack: each is well-formed.

A result that comes too late is not learnt, and its samples are owed; in a run such a client soon
loses its place, here it keeps it."""

import numpy as np

from folkmoot.learning.methods.distro import wire
from liars_client import Client

ATTACKS = {
    "opposite": 1,
    "random": 1,
    "random × 16": 16,
    "loud × 100": 16,
    "constant": 1,
    "copy of another's": 1,
    "own old one": 1,
    "a tenth of its share": 1,
    "other data": 1,
    "its result of the round before": 1,
    "honest but too late": 1,
}
"""And the bits of an amplitude with which each is tried: with one bit nobody can be loud."""


def lie(
    attack: str, liar: Client, step: int, first: int, honest: dict[bytes, bytes]
) -> bytes | None:
    """What a liar sends, if it does in time; colluders draw the same numbers and so say nearly the
    same."""
    plan = liar.method.plan
    match attack:
        case "copy of another's":
            return honest[min(honest)]
        case "a tenth of its share":
            return liar.train(step, first, 1)
        case "other data":
            return liar.train(step, first + 10_000_000)
        case "honest but too late":
            liar.train(step, first)
            return None
        case "its result of the round before":
            liar.train(step, first)
            return liar.made[max(step - 1, 0)]
        case "own old one" if step >= 5:
            return liar.made[step % 5]
    index, value = wire.unpack(plan, liar.train(step, first))
    match attack:
        case "opposite":
            return wire.pack(plan, index, -value)
        case "loud × 100":
            return wire.pack(plan, index, value * np.float32(100))
        case "random" | "random × 16" | "constant":
            draw = np.random.default_rng(0 if attack == "constant" else (step, liar.name[0]))
            size = np.abs(value).mean() * (16 if attack == "random × 16" else 1)
            places = [
                np.sort(np.argsort(draw.random((g.count, g.size)), axis=1)[:, : g.k]).ravel()
                for g in plan.groups
            ]
            signs = draw.choice([-size, size], len(value)).astype(np.float32)
            return wire.pack(plan, np.concatenate(places).astype(np.int32), signs)
    return liar.made[-1]
