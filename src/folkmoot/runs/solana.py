"""A run on Solana as its owner handles it: put on chain, opened to clients, looked at, closed."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from folkmoot.authority.server import events
from folkmoot.authority.solana import account
from folkmoot.authority.solana.answers import NO_RUN
from folkmoot.authority.solana.client import SolanaAuthority
from folkmoot.authority.solana.create import RunOwner
from folkmoot.authority.solana.effects import effects_between
from folkmoot.authority.solana.place import Place, parse_place
from folkmoot.core.coordinator import Coordinator, Phase, Run
from folkmoot.host.clock import wall_clock
from folkmoot.host.event_log import EventLog
from folkmoot.host.signing import Identity
from folkmoot.runs.fingerprint import fingerprinted

SCHEME = "solana:"


class Standing(NamedTuple):
    """How far a run on chain is, and what its clients have earned."""

    state: Coordinator
    address: str  # of the account
    points: tuple[tuple[bytes, int], ...]  # by client, of those who are there or wait


def place_of(url: str) -> Place:
    """Where `solana:<run_id>@<rpc-url>` is."""
    if not url.startswith(SCHEME):
        raise ValueError(f"{url}: expected {SCHEME}<run_id>@<rpc-url>")
    return parse_place(url.removeprefix(SCHEME))


async def create_on_chain(
    run: Run,
    rpc_url: str,
    key: str | os.PathLike[str],
    *,
    open_to_all: bool = True,
    points_per_epoch: int = 0,
) -> tuple[str, bool]:
    """Put `run` on the cluster at `rpc_url`; the url that clients join, and whether it is new.

    `key` is the owner's, made when it is not there; it pays. It also lets clients in, where the
    run is not open to all. Raises `ValueError` when the run does not fit, or there is another one.
    """
    url = f"{SCHEME}{run.run_id}@{rpc_url}"
    identity, made = Identity.load(key), fingerprinted(run)
    owner = RunOwner(place_of(url), identity)
    return url, await owner.create(made, open_to_all, points_per_epoch, identity.public)


def owning(url: str, key: str | os.PathLike[str]) -> RunOwner:
    """What the key's owner may do to the run at `url`."""
    return RunOwner(place_of(url), Identity.read(key))


async def authorize(
    url: str, key: str | os.PathLike[str], clients: Iterable[bytes], revoke: bool = False
) -> int:
    """Let clients (public keys) into a run that is not open to all, or no longer.

    How many were not so already.
    """
    owner, changed = owning(url, key), 0
    for client in clients:
        changed += await (owner.revoke(client) if revoke else owner.authorize(client))
    return changed


async def standing(url: str) -> Standing:
    """How far the run at `url` is. Anybody may look."""
    reader = RunOwner(place_of(url), Identity.random())
    data = await reader.data()
    if not data:
        raise ValueError(f"{url}: {NO_RUN}")
    record = account.read(data)
    state = account.state_of(record)
    slots = [*account.client_slots(record), *account.pending(record)]
    earned = tuple((slot["id"].tobytes(), int(slot["points"])) for slot in slots)
    return Standing(state, str(reader.address), earned)


async def follow_on_chain(url: str, folder: str | os.PathLike[str]) -> Coordinator:
    """Write `events.jsonl` in `folder` until the run is finished; its last state."""
    place = place_of(url)
    authority = SolanaAuthority(url.removeprefix(SCHEME), place.run_id, Identity.random())
    before: Coordinator | None = None
    with closing(EventLog(Path(folder) / "events.jsonl")) as log:
        log.write(events.Started(place.run_id, url, False))
        try:
            async for _ in authority.watch():
                state = authority.state
                assert state is not None, "it was shown"
                for effect in effects_between(before, state, wall_clock()) if before else ():
                    log.write(effect)
                before = state
                if state.phase is Phase.Finished:
                    return state
        finally:
            await asyncio.shield(authority.close())
            log.write(events.Stopped())
    raise AssertionError("an authority is watched without end")
