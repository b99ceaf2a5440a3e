"""Keeps one run on a journal, and shows what clients see of it.

The run's clock stands still while no keeper runs: clients are not silent because we were.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from folkmoot.core import coordinator
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import view
from folkmoot.host.durable import Durable, Step
from folkmoot.host.journal import Journal

Listener = Callable[[m.Effect, int], None]


class Keeper:
    """One run on one journal. `serve` must run for anything to happen."""

    def __init__(self, run: Run, journal: Path, listen: Listener | None = None) -> None:
        self._listen = listen or (lambda effect, now: None)
        self._durable: Durable[Coordinator] = Durable(
            coordinator,
            Journal(journal),
            run.run_id,
            lambda: coordinator.create(run, 0),
            self._act,
        )
        self.resumed = self._durable.resumed
        self.view = view(self.state)
        self.version = 0
        self._turn = 0  # counts the versions in which more changed than who waits
        self._news = asyncio.Event()  # a new one for every version

    @property
    def state(self) -> Coordinator:
        return self._durable.state

    def now(self) -> int:
        """The run's time in milliseconds."""
        return self._durable.now()

    async def submit(self, message: m.AnyEvent) -> m.Refused | None:
        """Why the message was refused, or None once it is on the disk."""
        return await self._durable.submit(message)

    async def serve(self) -> None:
        """Apply what arrives and tick when something is due, until cancelled."""
        await self._durable.serve()

    def close(self) -> None:
        """Let the journal go; for a keeper that never served."""
        self._durable.close()

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

    def _act(self, step: Step) -> None:
        for effect in step.effects:
            self._listen(effect, step.now)
        shown = view(step.after, (step.before, self.view))
        if shown != self.view:
            self._turn += replace(shown, pending=self.view.pending) != self.view
            self.view, self.version = shown, self.version + 1
            news, self._news = self._news, asyncio.Event()
            news.set()
