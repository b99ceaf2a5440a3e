"""What everyone who watches a run is sent: its state once, then what changes.

A change becomes the bytes of a message once for all. A watcher that is too slow is sent the newest
state again instead of a growing backlog. Beside the state go the names of those whose connection
ended: clients ask such a one at once whether it is there, and believe nothing else of it. They are
not recorded, and whoever is sent a whole state does not hear of them.
"""

import asyncio
from typing import Any

from folkmoot.authority.server import wire
from folkmoot.authority.server.keeper import Keeper
from folkmoot.core.coordinator import encode
from folkmoot.core.coordinator.messages import GONE_MAX
from folkmoot.core.coordinator.receive import member
from folkmoot.core.coordinator.view import encode_change

# Changes a watcher may lag behind before it is sent the whole state.
LAG = 64
# Seconds between two changes, per watcher: about what sending one costs; and the longest.
PACE, LONGEST_PACE = 100e-6, 0.2
# Who waits is told at a fifth of that pace: thousands who join are not held up by the news of it.
UNHURRIED = 5


class Changes:
    """The newest views of a keeper. `publish` must run for anything to be sent."""

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.watchers = 0
        self.version = keeper.version
        self._shown = keeper.view
        self._messages: list[bytes] = []  # the newest last, each one version on
        self._encoded = (-1, b"")
        self._moved = asyncio.Event()  # a new one for every version
        self._hung_up: set[bytes] = set()
        self._someone_hung_up = asyncio.Event()

    async def newer(self, version: int) -> tuple[int, list[bytes]]:
        """The newest version, once it is another, and what brings a watcher at `version` to it."""
        if version == self.version:
            await self._moved.wait()
        behind = self.version - version
        if version < 0 or behind > len(self._messages):
            return self.version, [self._snapshot()]
        return self.version, self._messages[-behind:]

    def hung_up(self, key: bytes) -> None:
        """A client's connection ended. Others are told if they may be waiting for it."""
        if member(self.keeper.state, key) is not None and len(self._hung_up) < GONE_MAX:
            self._hung_up.add(key)
            self._someone_hung_up.set()

    async def publish(self) -> None:
        """Send what is new, until cancelled."""
        await asyncio.gather(self._follow(), self._tell_who_hung_up())

    async def _follow(self) -> None:
        """What comes while the last change is still going out to everybody becomes one change."""
        async for _, shown in self.keeper.watch(lambda: UNHURRIED * self._pace()):
            if shown is self._shown:
                continue
            change, self._shown = encode_change(self._shown, shown), shown
            self._send(delta=change)
            await asyncio.sleep(self._pace())

    async def _tell_who_hung_up(self) -> None:
        while True:
            await self._someone_hung_up.wait()
            self._someone_hung_up.clear()
            names, self._hung_up = self._hung_up, set()
            self._send(hung_up=sorted(names))
            # No oftener than changes, however often somebody hangs up.
            await asyncio.sleep(self._pace())

    def _send(self, **what: Any) -> None:
        self.version += 1
        message = wire.to_bytes(wire.Change(version=self.version, **what))
        self._messages = [*self._messages[1 - LAG :], message]
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def _snapshot(self) -> bytes:
        """The newest state, encoded once however many ask for it."""
        if self._encoded[0] != self.version:
            whole = wire.Change(version=self.version, snapshot=encode(self._shown))
            self._encoded = (self.version, wire.to_bytes(whole))
        return self._encoded[1]

    def _pace(self) -> float:
        return min(self.watchers * PACE, LONGEST_PACE)
