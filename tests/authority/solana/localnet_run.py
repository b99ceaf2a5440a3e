"""A run on a localnet in this process, and clients of it."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from authority.any_run import OWNER, run
from folkmoot.authority.solana.client import SolanaAuthority
from folkmoot.authority.solana.create import RunOwner
from folkmoot.authority.solana.instructions import PROGRAM_ID
from folkmoot.authority.solana.localnet.ledger import LocalLedger
from folkmoot.authority.solana.localnet.serve import Localnet, serving
from folkmoot.authority.solana.place import Place
from folkmoot.host.signing import Identity

SLOT = 0.1


@asynccontextmanager
async def on_chain(
    open_: bool = True, points: int = 0, ledger: LocalLedger | None = None, **config: Any
) -> AsyncIterator[Localnet]:
    """A localnet with run "moot" of `OWNER`."""
    async with serving(ledger, slot_seconds=SLOT) as net:
        owner = owner_of(net.url)
        made = run(**{"max_clients": 9, **config})
        assert await owner.create(made, open_, points, OWNER.public)
        yield net


def owner_of(*urls: str, identity: Identity = OWNER, run_id: str = "moot") -> RunOwner:
    """A run's owner, who knows these nodes."""
    return RunOwner(Place(run_id, urls, PROGRAM_ID), identity)


def connected(
    net: Localnet, identity: Identity, *urls: str, run_id: str = "moot"
) -> AbstractAsyncContextManager[SolanaAuthority]:
    return knowing(",".join([*urls, net.url]), identity, run_id)


@asynccontextmanager
async def knowing(
    urls: str, identity: Identity, run_id: str = "moot"
) -> AsyncIterator[SolanaAuthority]:
    """A client that knows these nodes only."""
    authority = SolanaAuthority(f"{run_id}@{urls}", run_id, identity)
    try:
        yield authority
    finally:
        await authority.close()
