"""Serve a run: its state on a journal, an event log, checkpoints that are read before they count.

Everything is in one folder: `run.journal`, `events.jsonl` and `owner.key`. Served again from the
same folder, the run goes on where it was, and as it was: a file that was edited since changes
nothing by itself. What differs is told (`RunServer.changes`); `control.update_run` changes it.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import NamedTuple

from folkmoot.authority.server import events
from folkmoot.authority.server.claims import ClaimPolicy, Claims
from folkmoot.authority.server.serve import Listening, listen
from folkmoot.authority.server.service import Access
from folkmoot.core.coordinator import Coordinator, Run
from folkmoot.core.coordinator.changes import Change, changes
from folkmoot.core.machine import Effect
from folkmoot.host.event_log import EventLog, Record
from folkmoot.host.files import read_text
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ServerTls
from folkmoot.runs.fingerprint import fingerprinted

logger = logging.getLogger(__name__)


class RunServer(NamedTuple):
    """A run that is being served."""

    run_id: str
    address: str
    owner_key: Path  # with which the run can be paused and resumed
    resumed: bool  # whether the folder held this run already
    changes: tuple[
        Change, ...
    ]  # what the run that it held would have to change to be the one given
    listening: Listening

    @property
    def state(self) -> Coordinator:
        """The newest state that is on the disk."""
        return self.listening.keeper.state

    async def forever(self) -> None:
        """Wait without end; raises when the run can no longer be kept."""
        await asyncio.shield(self.listening.failed)


@asynccontextmanager
async def serve_run(
    run: Run,
    folder: str | os.PathLike[str],
    *,
    listen_at: str = "127.0.0.1:0",
    allow: Collection[bytes] = (),
    data: Path | None = None,
    verify_checkpoints: ClaimPolicy | str = ClaimPolicy.auto,
    tls: ServerTls | None = None,
    tell: Callable[[Effect], None] = lambda effect: None,
) -> AsyncIterator[RunServer]:
    """Keep `run` for clients to join, while the block lasts.

    `listen_at` is host:port, where port 0 takes a free one. `allow` holds the public keys that may
    join; with none, anyone may. `data` is a folder of files for clients that have no data (urls
    `run:NAME`). `verify_checkpoints`: see `ClaimPolicy`. `tell` is called with each effect.
    """
    home = Path(folder)
    given, run = run, fingerprinted(run, data)
    key = home / "owner.key"
    with closing(EventLog(home / "events.jsonl")) as log:

        def noted(effect: Effect, now: int) -> None:
            log.write(effect)
            tell(effect)

        async with listen(
            run,
            home / "run.journal",
            listen_at,
            Access(frozenset(allow), frozenset({Identity.load(key).public})),
            tls,
            noted,
            data,
            _claims(ClaimPolicy(verify_checkpoints), log.write),
        ) as listening:
            address = f"{listen_at.rpartition(':')[0]}:{listening.port}"
            resumed = listening.keeper.resumed
            log.write(events.Started(run.run_id, address, resumed))
            kept = listening.keeper.state.run
            differs = changes(kept, fingerprinted(given, data, kept)) if resumed else ()
            if differs:
                log.write(events.ConfigDiffers(tuple(map(str, differs))))
            yield RunServer(run.run_id, address, key, resumed, differs, listening)
        log.write(events.Stopped())


def _claims(policy: ClaimPolicy, tell: Callable[[Record], None]) -> Claims | None:
    """What checks checkpoints, as far as this installation can."""
    try:
        from folkmoot.runs.stored_checkpoint import check_stored
    except ImportError as error:
        if policy is ClaimPolicy.always:
            raise
        logger.warning("checkpoints are believed unread: %s (folkmoot[federated] has it)", error)
        return None
    return Claims(check_stored, policy, tell)


def read_keys(file: Path) -> frozenset[bytes]:
    """The public keys in a file: hex, one a line, `#` begins a comment."""
    lines = [line.split("#")[0].strip() for line in read_text(file).splitlines()]
    try:
        return frozenset(bytes.fromhex(line) for line in lines if line)
    except ValueError as error:
        raise ValueError(f"{file}: not a list of public keys in hex: {error}") from None
