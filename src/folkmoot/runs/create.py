"""Put a run into a shared store, where nobody has to serve it; and write down what happens to it.

A run in a store is kept by its clients. Whoever follows it here only looks on and writes
`events.jsonl`, as a server would: it can be killed, started again, or left out.
"""

import asyncio
import os
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from folkmoot.authority.access import Access
from folkmoot.authority.server import events
from folkmoot.authority.store import create
from folkmoot.authority.store.client import StoreAuthority
from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.host.event_log import EventLog
from folkmoot.host.signing import Identity
from folkmoot.runs.fingerprint import fingerprinted


class CreatedRun(NamedTuple):
    """A run that is in a store."""

    run_id: str
    url: str  # what `join_run` takes
    owner_key: Path  # with which the run can be paused and resumed, by the one who created it
    new: bool  # whether it was not there before


async def create_run(
    run: Run, store: str, folder: str | os.PathLike[str], *, allow: Collection[bytes] = ()
) -> CreatedRun:
    """Put `run` into the store at the url `store` (tcp://…, etcd://…), unless it is there.

    `folder` is for the owner's key. `allow` holds the public keys that may join; with none, anyone
    may. Raises `ValueError` when the store has another run of this name.
    """
    run, key = fingerprinted(run), Path(folder) / "owner.key"
    owner = Identity.load(key)
    access = Access(frozenset(allow), frozenset({owner.public}))

    def put() -> bool:
        with closing(open_store(store, run.run_id)) as part:
            return create.create_run(part, run, access, owner)

    return CreatedRun(run.run_id, f"store:{store}", key, await asyncio.to_thread(put))


async def follow_run(created: CreatedRun, folder: str | os.PathLike[str]) -> Coordinator:
    """Write `events.jsonl` in `folder` until the run is finished; its last state."""
    with closing(EventLog(Path(folder) / "events.jsonl")) as log:
        authority = StoreAuthority(
            created.url.removeprefix("store:"),
            created.run_id,
            Identity.load(created.owner_key),
            lambda effect, now: log.write(effect),
        )
        log.write(events.Started(created.run_id, created.url, not created.new))
        try:
            async for state in authority.watch():
                if state.phase is Phase.Finished:
                    return state
        finally:
            await authority.close()
            log.write(events.Stopped())
    raise AssertionError("an authority is watched without end")
