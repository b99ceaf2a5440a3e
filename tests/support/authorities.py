"""Who keeps the state of a run under test. Another authority is one more class, named below."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Protocol, Self

from folkmoot.authority import Authority
from folkmoot.authority.open import open_authority
from folkmoot.authority.server.claims import Claims
from folkmoot.authority.server.serve import Listening, listen
from folkmoot.authority.server.service import Access
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.machine import Effect
from folkmoot.host.signing import Identity

OnEffect = Callable[[Effect, int], None]


class RunKeeper(Protocol):
    """A run whose state is kept while the test goes on."""

    @classmethod
    def keep(
        cls, run: Run, folder: Path, on_effect: OnEffect, claims: Claims
    ) -> AbstractAsyncContextManager[Self]: ...

    @property
    def state(self) -> Coordinator: ...

    def open(self, identity: Identity) -> Authority:
        """The authority as a member uses it."""
        ...


class ServerKeeper:
    """A server on loopback."""

    def __init__(self, listening: Listening) -> None:
        self._listening = listening

    @classmethod
    @asynccontextmanager
    async def keep(
        cls, run: Run, folder: Path, on_effect: OnEffect, claims: Claims
    ) -> AsyncIterator[Self]:
        journal = folder / "run.journal"
        async with listen(
            run, journal, "127.0.0.1:0", Access(), listener=on_effect, claims=claims
        ) as listening:
            yield cls(listening)

    @property
    def state(self) -> Coordinator:
        return self._listening.keeper.state

    def open(self, identity: Identity) -> Authority:
        url = f"server://127.0.0.1:{self._listening.port}"
        return open_authority(url, self.state.run.run_id, identity)


AUTHORITIES: dict[str, type[RunKeeper]] = {"server": ServerKeeper}
