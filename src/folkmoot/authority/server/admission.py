"""What a stranger may cost a server before it has said who it is.

A message is not taken from its connection before it is let in: a few at a time in all, fewer from
one address, each with `PATIENCE` to arrive. Until then gRPC holds no more of it than `LOOKAHEAD`.
Who comes when too many wait already is turned away at once, and can come again. Who was refused too
often (`refusal_counts`) waits in a line of its address, in which one is read every `PENALTY`.
"""

import asyncio
import ipaddress
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from folkmoot.authority.server.refusal_counts import RefusalCounts
from folkmoot.host.rpc import Options

#: Messages that are being read at a time; each has at most `wire.MAX_REQUEST` bytes.
READING, READING_OF_ONE = 64, 8
#: Messages that wait for that; each has at most `LOOKAHEAD` bytes here.
WAITING, WAITING_OF_ONE = 8192, 4096
#: Seconds a message has to arrive in, once it is its turn.
PATIENCE = 5.0
LOOKAHEAD = 16 * 1024
#: Seconds for each in the line of those who were refused too often.
PENALTY = 0.25
CONNECTIONS = 65_536

OPTIONS: Options = [
    ("grpc.http2.lookahead_bytes", LOOKAHEAD),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.max_metadata_size", 8192),
    ("grpc.max_allowed_incoming_connections", CONNECTIONS),
    # A client that is part of the run watches it; other connections end.
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
]


class Crowded(Exception):
    """Too many wait already; the message says who."""


class _Address:
    """Who comes from one address."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(READING_OF_ONE)
        self.line = asyncio.Lock()
        self.inside = 0


class Admission:
    def __init__(self) -> None:
        self._places = asyncio.Semaphore(READING)
        self._addresses: defaultdict[str, _Address] = defaultdict(_Address)
        self._refusals = RefusalCounts()
        self.waiting = 0  # or being read

    @asynccontextmanager
    async def passing(self, peer: str) -> AsyncIterator[None]:
        """Wait for one's turn to be read, and hold it for the time of the block."""
        name = address_of(peer)
        if self.waiting >= WAITING:
            raise Crowded("the server has too many requests: try again later")
        address = self._addresses[name]
        if address.inside >= WAITING_OF_ONE:
            raise Crowded(f"the server has too many requests from {name}: try again later")
        self.waiting += 1
        address.inside += 1
        try:
            if self._refusals.must_wait(peer, name):
                async with address.line:
                    await asyncio.sleep(PENALTY)
            async with address.places, self._places:
                yield
        finally:
            self.waiting -= 1
            address.inside -= 1
            if not address.inside:
                del self._addresses[name]

    def judge(self, peer: str, refused: bool) -> None:
        """Whether what came from there was worth reading."""
        if refused:
            self._refusals.bad(peer, address_of(peer))
        else:
            self._refusals.good(peer)


def address_of(peer: str) -> str:
    """Whose neighbours share a limit: an IPv4 address, the /64 of an IPv6 one, else all of it.

    gRPC says `ipv4:1.2.3.4:567`, `ipv6:%5B2001:db8::1%5D:567`, `unix:…`.
    """
    kind, _, rest = peer.partition(":")
    if kind == "ipv4":
        return rest.rpartition(":")[0]
    if kind != "ipv6":
        return peer
    host = rest.replace("%5B", "[").replace("%5D", "]").rpartition(":")[0].strip("[]")
    try:
        whole = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(whole.ipv4_mapped or ipaddress.IPv6Network((whole, 64), strict=False))
