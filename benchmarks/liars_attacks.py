"""What liars send, attack by attack: each is well-formed.

A result that comes too late is not learnt, and its client loses its place, here for good: a run of
one epoch."""

from typing import NamedTuple

import numpy as np

from folkmoot.learning.methods.distro import wire
from liars_client import Client


class Setting(NamedTuple):
    """With which an attack is tried."""

    bits: int = 1
    """Of an amplitude: with one nobody can be loud."""
    batch: int = 24
    """Samples of a round. 80 for who trains as honest clients do, but less, or elsewhere: three
    have no tenth, and ten honest clients that share 24 learn 4 % less than seven do."""


ATTACKS = {
    "opposite": Setting(),
    "random": Setting(),
    "random × 16": Setting(bits=16),
    "loud × 100": Setting(bits=16),
    "constant": Setting(),
    "copy of another's": Setting(),
    "own old one": Setting(),
    "a tenth of its share": Setting(batch=80),
    "other data": Setting(batch=80),
    "its result of the round before": Setting(),
    "honest but too late": Setting(),
}


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
            return liar.train(step, first, max(liar.share // 10, 1))
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
