"""A participant's line to its coordinator over a network that takes its time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from folkmoot.federated import wire
from folkmoot.federated.participant.connection import Connection
from folkmoot.host.tls import ClientTls
from support.certificates import LoopbackAuthority
from support.federation import RUN, federation_config, identity, running_federation, tls_security

ROUND_TRIP = 0.4


class SlowLine:
    """Forwards to a coordinator; every answer of it is `ROUND_TRIP` seconds on its way."""

    def __init__(self) -> None:
        self.opened = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncIterator[str]:
        async def connected(near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
            self.opened += 1
            far, to_far = await asyncio.open_connection("127.0.0.1", port)
            self._forward(near, to_far, 0.0)
            self._forward(far, to_near, ROUND_TRIP)

        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for task in self._tasks:
                task.cancel()

    def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, delay: float
    ) -> None:
        async def run() -> None:
            while data := await source.read(65_536):
                await asyncio.sleep(delay)
                target.write(data)
            target.close()

        self._tasks.add(asyncio.create_task(run()))


async def test_a_distant_coordinator_is_reached_with_one_connection(tmp_path: Path) -> None:
    line = SlowLine()
    async with (
        running_federation(tmp_path) as federation,
        line.listening(federation.server.port) as address,
    ):
        participant = Connection(address, RUN, identity("a"), longest_pause=ROUND_TRIP / 4)
        try:
            async with asyncio.timeout(60):
                answer = await participant.insist("Rendezvous", wire.RendezvousRequest())
        finally:
            await participant.close()
    assert answer.session
    assert line.opened == 1


async def test_taking_part_over_tls_and_a_long_line_takes_one_handshake(tmp_path: Path) -> None:
    authority = LoopbackAuthority(tmp_path, "authority")
    line = SlowLine()
    config = federation_config(tmp_path, {"rounds": 1}, security=tls_security(authority))
    async with (
        running_federation(tmp_path, config) as federation,
        line.listening(federation.server.port) as address,
        asyncio.timeout(60),
    ):
        tls = ClientTls(authority.file)
        participant = Connection(address, RUN, identity("a"), tls, longest_pause=ROUND_TRIP / 4)
        try:
            await participant.register()
            await participant.insist("Heartbeat", wire.HeartbeatRequest())
        finally:
            await participant.close()
    assert line.opened == 1
