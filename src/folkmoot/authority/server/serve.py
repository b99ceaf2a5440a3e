"""A keeper and its service, listening: what `folkmoot serve` runs."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from folkmoot.authority.server import wire
from folkmoot.authority.server.claims import Claims
from folkmoot.authority.server.keeper import Keeper, Listener
from folkmoot.authority.server.service import Access, Service
from folkmoot.core.coordinator import Run

MOST_WAITING = 65_536


class ServerTls(NamedTuple):
    """Files in PEM. With `client_ca`, clients must show a certificate it has signed."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.ssl_server_credentials(
            [(self.key.read_bytes(), self.cert.read_bytes())],
            self.client_ca.read_bytes() if self.client_ca else None,
            self.client_ca is not None,
        )


def collect_seldom() -> None:
    """For a process that only serves: look for garbage cycles less often.

    Thousands of streams are thousands of live objects that every full collection walks through,
    a fifth of the processor time of a change; few of our objects ever form a cycle.
    """
    gc.set_threshold(50_000, 20, 50)


class Listening(NamedTuple):
    keeper: Keeper
    service: Service
    port: int
    failed: asyncio.Future[Any]  # done, with the error, when the run can no longer be kept


def _port(server: grpc.aio.Server, address: str, tls: ServerTls | None) -> int:
    try:
        if tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, tls.credentials()))
    except RuntimeError:
        why = "the address is taken or not of this machine"
        if tls is not None:
            why += f", or {tls.cert} and {tls.key} are not a certificate and its key in PEM"
        raise OSError(f"cannot listen at {address}: {why}") from None


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
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", wire.MAX_REQUEST),
            ("grpc.so_reuseport", 0),
            # All clients of a large run come back at once after a restart of the server; by default
            # gRPC cancels some of a thousand requests that wait.
            ("grpc.server.max_pending_requests", MOST_WAITING),
            ("grpc.server.max_pending_requests_hard_limit", MOST_WAITING),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
        ]
    )
    service.register(server)
    try:
        port = _port(server, address, tls)
    except BaseException:
        keeper.close()
        raise
    working = asyncio.gather(keeper.serve(), service.publish())
    await server.start()
    try:
        yield Listening(keeper, service, port, working)
    finally:
        await server.stop(grace=0.5)
        if claims is not None:
            await claims.close()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
