"""The network between the nodes of a world: late, lossy, doubling, reordering, cut in two."""

from collections.abc import Callable
from typing import Any

from folkmoot.simulate.loop import Loop
from folkmoot.simulate.node import Node


class Network:
    """Carries calls from node to node. Every fault is a field that a fault plan sets."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.latency = (5, 60)  # milliseconds; each message draws its own, so they overtake
        self.loss = 0.0
        self.duplication = 0.0
        self.side: dict[int, int] = {}  # id(node) -> side of the cut; all on side 0 when whole

    def send(self, source: Node, target: Node, action: Callable[..., object], *args: Any) -> None:
        """Have `target` do `action(*args)` when the message arrives, if it does."""
        if self.side.get(id(source), 0) != self.side.get(id(target), 0):
            return
        loop = self.loop
        copies = 1 + loop.chance(self.duplication)
        for _ in range(copies):
            if not loop.chance(self.loss):
                loop.after(loop.random.uniform(*self.latency), target.arrive, action, args)

    def call(
        self,
        source: Node,
        target: Node,
        then: Callable[[Any], None],
        timeout: float,
        action: Callable[..., Any],
        *args: Any,
    ) -> None:
        """Have `target` do `action(*args)`; `then` hears its answer, or None at the timeout.

        A request that arrives twice is carried out twice; `then` is called once, if `source` lives.
        """
        life, open_ = source.life, [True]

        def ask() -> None:
            answer = action(*args)
            if target.up:
                self.send(target, source, hear, answer)

        def hear(answer: Any) -> None:
            if open_ and source.life == life:
                open_.clear()
                then(answer)

        self.send(source, target, ask)
        source.after(timeout, hear, None)

    def cut(self, nodes: list[Node]) -> None:
        """Part `nodes` from everyone else."""
        self.side = {id(node): 1 for node in nodes}

    def heal(self) -> None:
        """No more faults."""
        self.side = {}
        self.loss = self.duplication = 0.0
        self.latency = (5, 60)
