"""A run's server on loopback, and clients of it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from folkmoot.authority.server.client import ServerAuthority
from folkmoot.authority.server.serve import Listening, listen
from folkmoot.authority.server.service import Access
from folkmoot.core.coordinator import Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls, ServerTls

OWNER = Identity(b"o" * 32)
OPEN = Access(owners=frozenset({OWNER.public}))


def run(**config: Any) -> Run:
    defaults = {"total_steps": 4, "min_clients": 2, "delay": 0, "rounds_per_epoch": 2}
    return Run(
        run_id="moot",
        config=CoordinatorConfig(**{**defaults, **config}),
        model=Model(checkpoint="store/"),
    )


@asynccontextmanager
async def serving(
    folder: Path, access: Access = OPEN, tls: ServerTls | None = None, **config: Any
) -> AsyncIterator[Listening]:
    journal = folder / "run.journal"
    async with listen(run(**config), journal, "127.0.0.1:0", access, tls) as server:
        yield server


@asynccontextmanager
async def connected(
    server: Listening, identity: Identity, run_id: str = "moot", tls: ClientTls | None = None
) -> AsyncIterator[ServerAuthority]:
    authority = ServerAuthority(f"127.0.0.1:{server.port}", run_id, identity, tls)
    try:
        yield authority
    finally:
        await authority.close()


async def until(authority: ServerAuthority, wanted: Phase) -> None:
    async with asyncio.timeout(120):
        async for state in authority.watch():
            if state.phase is wanted:
                return


def join(identity: Identity) -> m.Join:
    return m.Join(identity.public, "moot")
