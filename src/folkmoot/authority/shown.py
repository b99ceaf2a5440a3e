"""What an authority shows of a run: its newest view, to all who watch, and never a step back."""

import asyncio
from collections.abc import AsyncIterator

from folkmoot.authority import Denied
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator.view import view


class Shown:
    """Of the run at `place`. All of it happens in one event loop."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._view: Coordinator | None = None
        self._viewed: tuple[Coordinator, Coordinator] | None = None  # the newest state, its view
        self._version = 0  # counts views
        self.news = asyncio.Event()
        """Set when anything is told, and then another one."""
        self.problem: Exception | None = None
        """Why nothing will be shown any more."""

    async def watch(self) -> AsyncIterator[Coordinator]:
        seen = 0
        while True:
            while self._version == seen:
                await self.wait()
            seen = self._version
            assert self._view is not None
            yield self._view

    async def wait(self) -> None:
        """Until something is told; raises `Denied` when there is a problem."""
        self.check()
        await self.news.wait()

    def check(self) -> None:
        if self.problem is not None:
            raise Denied(f"{self._place}: {self.problem}")

    def show(self, state: Coordinator) -> None:
        shown = view(state, self._viewed)
        self._viewed = state, shown
        # Where lines of records parted, ours may have been ahead: nobody is shown a step back.
        if self._view is not None and _stage(shown) < _stage(self._view):
            return
        if shown != self._view:
            self._view, self._version = shown, self._version + 1
            self.tell()

    def tell(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()


_STAGES = {Phase.Warmup: 1, Phase.RoundTrain: 2, Phase.RoundWitness: 2, Phase.Cooldown: 3}


def _stage(state: Coordinator) -> tuple[int, int, int, bool]:
    """How far a run is, in an order that it goes through in one direction."""
    epoch, height = state.turn
    return epoch, _STAGES.get(state.phase, 0), height, state.phase is Phase.RoundWitness
