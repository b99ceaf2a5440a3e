"""Real peers on loopback for tests: opened together, closed together, their events kept."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from folkmoot.exchange.peer import GossipMessage, Limits, Peer, PeerConfig, PeerEvent

TOPIC = hashlib.sha256(b"a run").digest()
QUICK = PeerConfig(stall=1.0, grace=0.2, shun=60.0, gossip=Limits(quiet=0.05, patience=0.5))
"""The same rules in less time."""


class Told:
    """A peer's events, to wait for."""

    def __init__(self) -> None:
        self.events: list[PeerEvent] = []
        self._news = asyncio.Event()

    def __call__(self, event: PeerEvent) -> None:
        self.events.append(event)
        self._news.set()

    async def until(
        self, kind: type[PeerEvent], matches: Callable[[Any], bool] = lambda e: True
    ) -> Any:
        """The first event of a kind, past or to come."""
        while True:
            for event in self.events:
                if isinstance(event, kind) and matches(event):
                    return event
            self._news.clear()
            await self._news.wait()


async def open_peer(config: PeerConfig = QUICK, secret: bytes = b"", topic: bytes = TOPIC) -> Peer:
    told = Told()
    return await Peer.open(secret or os.urandom(32), topic, config, told)


def told(peer: Peer) -> Told:
    assert isinstance(peer.on_event, Told)
    return peer.on_event


def roster(peers: Iterable[Peer]) -> dict[bytes, bytes]:
    return {peer.id: peer.address for peer in peers}


@asynccontextmanager
async def strangers(count: int, config: PeerConfig = QUICK) -> AsyncIterator[list[Peer]]:
    """Peers that know nothing of each other."""
    peers = [await open_peer(config) for _ in range(count)]
    try:
        yield peers
    finally:
        await asyncio.gather(*(peer.close() for peer in peers))


@asynccontextmanager
async def members(
    count: int, config: PeerConfig = QUICK, **changes: Any
) -> AsyncIterator[list[Peer]]:
    """Peers that are all connected."""
    config = msgspec.structs.replace(config, **changes)
    async with strangers(count, config) as peers:
        await assemble(peers)
        yield peers


async def assemble(peers: list[Peer], everybody: dict[bytes, bytes] | None = None) -> None:
    """Make these members, and wait until they are connected to everybody."""
    everybody = everybody or roster(peers)
    for peer in peers:
        await peer.members(everybody)
    for peer in peers:
        assert await peer.connected(everybody, 20)


async def heard(peer: Peer, count: int) -> list[GossipMessage]:
    return [await peer.receive() for _ in range(count)]
