"""Look at a run from outside, halt it, let it go on."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from folkmoot.authority import Authority, Unreachable
from folkmoot.authority.open import open_authority
from folkmoot.core.coordinator import Coordinator
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls

# How long an authority may take to show its state, in seconds.
PATIENCE = 10.0


async def run_state(
    url: str, run_id: str, key: str | os.PathLike[str] | None = None, tls: ClientTls | None = None
) -> Coordinator:
    """How far a run is. With no `key`, ask as a stranger, which a run for all answers too."""
    async with _opened(url, run_id, key, tls) as authority:
        return await _state(authority, url)


async def pause_run(
    url: str, run_id: str, owner_key: str | os.PathLike[str], tls: ClientTls | None = None
) -> Coordinator:
    """Halt a run once its epoch has drained: nothing that was trained is lost."""
    return await _order(m.Pause(), url, run_id, owner_key, tls)


async def resume_run(
    url: str, run_id: str, owner_key: str | os.PathLike[str], tls: ClientTls | None = None
) -> Coordinator:
    """Let a paused run go on."""
    return await _order(m.Resume(), url, run_id, owner_key, tls)


async def _order(
    message: m.Pause | m.Resume,
    url: str,
    run_id: str,
    key: str | os.PathLike[str],
    tls: ClientTls | None,
) -> Coordinator:
    async with _opened(url, run_id, key, tls) as authority:
        refused = await authority.submit(message)
        if refused is not None:
            raise ValueError(f"refused: {refused.reason}")
        return await _state(authority, url)


@asynccontextmanager
async def _opened(
    url: str, run_id: str, key: str | os.PathLike[str] | None, tls: ClientTls | None
) -> AsyncIterator[Authority]:
    identity = Identity.load(key) if key is not None else Identity.random()
    authority = open_authority(url, run_id, identity, tls)
    try:
        yield authority
    finally:
        await authority.close()


async def _state(authority: Authority, url: str) -> Coordinator:
    try:
        async with asyncio.timeout(PATIENCE):
            return await anext(authority.watch())
    except TimeoutError:
        raise Unreachable(f"{url} does not answer: is the server running?") from None
