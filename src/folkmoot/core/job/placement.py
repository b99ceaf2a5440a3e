"""What workers need and what a cluster has, as far as it can be told before anything is placed.

A gang is placed as one or not at all. It is made of bundles, each of which lies on one node. The
sums here catch what can never fit; the substrate knows the rest.
"""

from collections.abc import Iterable, Iterator
from math import floor
from typing import Literal

import msgspec

from folkmoot.core.config import Broken, settle_floats

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
Amounts = dict[str, float]


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker uses, or one node has."""

    cpu: float = 1.0
    gpu: float = 0.0
    # Bytes; 0 asks for none in particular.
    memory: int = 0
    custom: dict[str, float] = {}

    def __post_init__(self) -> None:
        settle_floats(self)

    def amounts(self) -> Amounts:
        """Everything above 0, by name."""
        named = {"cpu": self.cpu, "gpu": self.gpu, "memory": float(self.memory), **self.custom}
        return {name: amount for name, amount in named.items() if amount > 0}

    def rules(self) -> Iterator[Broken]:
        for name in ("cpu", "gpu", "memory"):
            if not 0 <= getattr(self, name) < 2**53:
                yield Broken(name, "must be 0 or more")
        if self.gpu > 1 and self.gpu != floor(self.gpu):
            yield Broken("gpu", "must be a share of one, or a whole number")
        for name, amount in self.custom.items():
            if not 0 <= amount < 2**53 or name in ("cpu", "gpu", "memory"):
                yield Broken("custom", f"'{name}' must be a name of its own with 0 or more")


class Bundle(msgspec.Struct, frozen=True):
    """What lies on one node: these workers, and what they need together."""

    actors: tuple[str, ...]
    needs: Amounts


class Gang(msgspec.Struct, frozen=True):
    """What is placed as one: a role, or the roles of a co-location."""

    name: str
    strategy: Strategy
    bundles: tuple[Bundle, ...]

    @property
    def needs(self) -> Amounts:
        total: Amounts = {}
        for bundle in self.bundles:
            add(total, bundle.needs)
        return total


class ClusterSize(msgspec.Struct, frozen=True, kw_only=True):
    """What the job may count on, if that is known beforehand: so many nodes with this each."""

    nodes: int = 1
    node: Resource = Resource()

    def rules(self) -> Iterator[Broken]:
        if not 1 <= self.nodes <= 65_536:
            yield Broken("nodes", "must be from 1 to 65536")

    def lacks(self, gangs: Iterable[Gang]) -> Iterator[str]:
        """Why these gangs cannot all be placed, in sentences."""
        has, used = self.node.amounts(), dict[str, float]()
        for gang in gangs:
            yield from self._lacks_on_a_node(gang, has)
            add(used, gang.needs)
        for name, amount in used.items():
            there = self.nodes * has.get(name, 0.0)
            if amount > there:
                yield f"has {there:g} {name} in all; the roles need {amount:g}"

    def _lacks_on_a_node(self, gang: Gang, has: Amounts) -> Iterator[str]:
        if gang.strategy == "STRICT_SPREAD" and len(gang.bundles) > self.nodes:
            count = len(gang.bundles)
            yield f"has {self.nodes} nodes; {gang.name} is STRICT_SPREAD and needs {count}"
        together = gang.needs if gang.strategy == "STRICT_PACK" else gang.bundles[0].needs
        for name, amount in together.items():
            if amount > has.get(name, 0.0):
                there = has.get(name, 0.0)
                yield f"has {there:g} {name} on a node; {gang.name} needs {amount:g} on one"


def add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0.0) + amount
