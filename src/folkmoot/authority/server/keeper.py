"""Keeps one run on a journal, and shows what clients see of it.

The run's clock stands still while no keeper runs, and until clients had time to come back: they
are not silent because we were, and nobody loses its place or its round to a restart.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from folkmoot.core import coordinator
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import view
from folkmoot.host.clock import standing_clock
from folkmoot.host.durable import Durable, Step
from folkmoot.host.journal import Journal

Listener = Callable[[m.Effect, int], None]

# Seconds in which clients that try once a second have found a server that was started again.
COME_BACK = 3.0


class Keeper(Durable[Coordinator]):
    """One run on one journal. `serve` must run for anything to happen."""

    def __init__(self, run: Run, journal: Path, listen: Listener | None = None) -> None:
        self._listen = listen or (lambda effect, now: None)
        begin = partial(coordinator.create, run, 0)
        opened = Journal(journal)
        clock = partial(standing_clock, pause=COME_BACK if opened.records else 0.0)
        super().__init__(coordinator, opened, run.run_id, begin, self._show, clock=clock)
        self.view = view(self.state)
        self.version = 0
        self._turn = 0  # counts the versions in which more changed than who waits
        self._news = asyncio.Event()  # a new one for every version

    async def watch(
        self, patience: Callable[[], float] = lambda: 0.0
    ) -> AsyncIterator[tuple[int, Coordinator]]:
        """(version, view): the present one, then whenever there is a newer one, the newest.

        That only others wait than before is told with the next change, or after `patience` seconds.
        """
        seen = turn = -1
        while True:
            while self.version == seen:
                await self._news.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(patience()):
                    while self._turn == turn:
                        await self._news.wait()
            seen, turn, shown = self.version, self._turn, self.view
            yield seen, shown

    def _show(self, step: Step) -> None:
        for effect in step.effects:
            self._listen(effect, step.now)
        shown = view(step.after, (step.before, self.view))
        if shown != self.view:
            self._turn += replace(shown, pending=self.view.pending) != self.view
            self.view, self.version = shown, self.version + 1
            news, self._news = self._news, asyncio.Event()
            news.set()
