"""A master's end of a substrate, for tests: gives orders and waits for what is told."""

import queue
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from folkmoot.unified.substrate import (
    Created,
    Ended,
    Found,
    Launch,
    Name,
    Substrate,
    SubstrateEvent,
)
from unified.substrate.processes import PATIENCE

E = TypeVar("E", bound=msgspec.Struct)


def end_all(substrate: Substrate) -> None:
    """End whatever masters have left there."""
    substrate.open(2**40, lambda _: None)
    substrate.end()


class Stand:
    def __init__(self, substrate: Substrate, folder: Path, epoch: int = 1) -> None:
        self.substrate, self.folder = substrate, folder
        self._told: queue.SimpleQueue[SubstrateEvent] = queue.SimpleQueue()
        self.heard: list[SubstrateEvent] = []
        self.found: Found = substrate.open(epoch, self._told.put)

    def launch(self, actor: str, does: str, incarnation: int = 1, **more: object) -> Launch:
        return Launch(
            actor=actor,
            incarnation=incarnation,
            main=f"unified.substrate.mains:{does}",
            argument=str(self.said(actor)).encode(),
            **more,  # type: ignore[arg-type]
        )

    def create(self, actor: str, does: str, incarnation: int = 1, **more: object) -> Created:
        self.substrate.create([self.launch(actor, does, incarnation, **more)])
        return self.created(actor, incarnation)

    def said(self, actor: str) -> Path:
        return self.folder / f"{actor}.said"

    def created(self, actor: str, incarnation: int = 1) -> Created:
        return self.wait(Created, lambda e: (e.actor, e.incarnation) == (actor, incarnation))

    def ended(self, actor: str, incarnation: int = 1) -> Ended:
        return self.wait(Ended, lambda e: (e.actor, e.incarnation) == (actor, incarnation))

    def kill(self, actor: str, incarnation: int = 1) -> Ended:
        self.substrate.kill(Name(actor, incarnation))
        return self.ended(actor, incarnation)

    def wait(self, kind: type[E], which: Callable[[E], bool] = lambda _: True) -> E:
        """The first of this kind that was told, now or before."""
        for event in self.heard:
            if isinstance(event, kind) and which(event):
                return event
        while True:
            event = self._told.get(timeout=PATIENCE)
            self.heard.append(event)
            if isinstance(event, kind) and which(event):
                return event
