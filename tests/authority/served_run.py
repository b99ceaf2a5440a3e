"""A run's server on loopback, and clients of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from authority.any_run import OWNER, run
from folkmoot.authority.server.client import ServerAuthority
from folkmoot.authority.server.serve import Listening, listen
from folkmoot.authority.server.service import Access
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls, ServerTls

OPEN = Access(owners=frozenset({OWNER.public}))


@asynccontextmanager
async def serving(
    folder: Path, access: Access = OPEN, tls: ServerTls | None = None, **config: Any
) -> AsyncIterator[Listening]:
    journal = folder / "run.journal"
    async with listen(run(**config), journal, "127.0.0.1:0", access, tls) as server:
        yield server


@asynccontextmanager
async def connected(
    server: Listening,
    identity: Identity,
    run_id: str = "moot",
    tls: ClientTls | None = None,
    member: bool = False,
) -> AsyncIterator[ServerAuthority]:
    authority = ServerAuthority(f"127.0.0.1:{server.port}", run_id, identity, tls, member)
    try:
        yield authority
    finally:
        await authority.close()
