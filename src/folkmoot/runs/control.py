"""Look at a run from outside, halt it, let it go on, change it."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from folkmoot.authority import Authority, Unreachable
from folkmoot.authority.open import open_authority
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.changes import Change, When, changes
from folkmoot.core.coordinator.receive import IN_EPOCH
from folkmoot.core.coordinator.state import trained
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls
from folkmoot.runs.fingerprint import fingerprinted

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


async def update_run(
    url: str, run: Run, owner_key: str | os.PathLike[str], tls: ClientTls | None = None
) -> tuple[Coordinator, tuple[Change, ...]]:
    """Make the run that is kept at `url` the one given: its state, and what changed.

    All of it or nothing: raises `ValueError` with the keys that cannot change now. `changes` says
    what may change when.
    """
    async with _opened(url, run.run_id, owner_key, tls) as authority:
        before = await _state(authority, url)
        run = fingerprinted(_fitted(run, url), before=before.run)
        wanted = changes(before.run, run)
        _refuse_now(before, wanted)
        if wanted:
            await _submit(authority, m.Update(run))
        return await _state(authority, url), wanted


async def extend_run(
    url: str,
    run_id: str,
    total_steps: int,
    owner_key: str | os.PathLike[str],
    tls: ClientTls | None = None,
) -> Coordinator:
    """Let a run train until `total_steps`; one that was finished goes on."""
    async with _opened(url, run_id, owner_key, tls) as authority:
        before = await _state(authority, url)
        if total_steps <= before.run.config.total_steps:
            planned = before.run.config.total_steps
            raise ValueError(f"the run trains until step {planned} already; give a larger number")
        config = replace(before.run.config, total_steps=total_steps)
        await _submit(authority, m.Update(replace(before.run, config=config)))
        if before.phase is Phase.Finished:
            await _submit(authority, m.Resume())
        return await _state(authority, url)


def _fitted(run: Run, url: str) -> Run:
    """The run as who keeps it will have it; a `ValueError` says what it cannot keep."""
    if not url.startswith("solana:"):
        return run
    from folkmoot.authority.solana import subset

    fitted = subset.fitted(run)
    subset.check(fitted)
    return fitted


def _refuse_now(state: Coordinator, wanted: tuple[Change, ...]) -> None:
    """The machine would refuse it too; here it can be said key by key."""
    late = [c.key for c in wanted if c.when is When.BeforeTraining and trained(state)]
    if late:
        raise ValueError(
            f"nothing was changed: {', '.join(late)} cannot change once the model was trained;"
            " take the old value back, or begin a new run with another run_id"
        )
    halted = [c.key for c in wanted if c.when is not When.AnyTime and state.phase in IN_EPOCH]
    if halted:
        raise ValueError(
            f"nothing was changed: {', '.join(halted)} can change between two epochs only. Pause"
            " the run (`folkmoot pause`), update it once `folkmoot status` says Paused, and resume"
        )


async def _submit(authority: Authority, message: m.OwnerMessage) -> None:
    refused = await authority.submit(message)
    if refused is not None:
        raise ValueError(f"refused: {refused.reason}")


async def _order(
    message: m.Pause | m.Resume,
    url: str,
    run_id: str,
    key: str | os.PathLike[str],
    tls: ClientTls | None,
) -> Coordinator:
    async with _opened(url, run_id, key, tls) as authority:
        await _submit(authority, message)
        return await _state(authority, url)


@asynccontextmanager
async def _opened(
    url: str, run_id: str, key: str | os.PathLike[str] | None, tls: ClientTls | None
) -> AsyncIterator[Authority]:
    identity = Identity.read(key) if key is not None else Identity.random()
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
        why = authority.last_error or f"no answer: is the {_keeper(url)} running?"
        raise Unreachable(f"{url}: {why}") from None


def _keeper(url: str) -> str:
    return {"store": "store", "solana": "node"}.get(url.partition(":")[0], "server")
