"""A keeper and its service, listening: what `folkmoot serve` runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from folkmoot.authority.server import admission, wire
from folkmoot.authority.server.claims import Claims
from folkmoot.authority.server.keeper import Keeper, Listener
from folkmoot.authority.server.service import Access, Service
from folkmoot.core.coordinator import Run
from folkmoot.host import rpc
from folkmoot.host.tasks import end_tasks
from folkmoot.host.tls import ServerTls


class Listening(NamedTuple):
    keeper: Keeper
    service: Service
    port: int
    failed: asyncio.Future[Any]  # done, with the error, when the run can no longer be kept


@asynccontextmanager
async def listen(
    run: Run,
    journal: Path,
    address: str,
    access: Access,
    tls: ServerTls | None = None,
    listener: Listener | None = None,
    data: Path | None = None,
    claims: Claims | None = None,
) -> AsyncIterator[Listening]:
    """A run served at `address` (host:port, port 0 for any) while the block lasts."""
    keeper = Keeper(run, journal, listener)
    service = Service(keeper, access, data, claims)
    limits = [("grpc.max_receive_message_length", wire.MAX_REQUEST), *admission.OPTIONS]
    server = rpc.new_server(limits)
    service.register(server)
    try:
        port = rpc.listen(server, address, tls)
    except BaseException:
        keeper.close()
        raise
    working = asyncio.gather(keeper.serve(), service.changes.publish())
    await server.start()
    try:
        yield Listening(keeper, service, port, working)
    finally:
        await server.stop(grace=0.5)
        if claims is not None:
            await claims.close()
        await end_tasks([working])
