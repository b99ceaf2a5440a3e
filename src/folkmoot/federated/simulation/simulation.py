"""A whole federation of virtual participants, from its first round to its last."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from hashlib import sha256
from math import floor
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from folkmoot.core.federation import messages as m
from folkmoot.core.user_error import UserError
from folkmoot.federated.coordinator.config import Federation
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.server import RunningServer, serving
from folkmoot.federated.simulation.virtual import Share
from folkmoot.host.durable import Step
from folkmoot.host.journal import Journal

#: A busy process may be late with its heartbeats; nobody is lost here.
PATIENCE = 3600.0


class Simulated(NamedTuple):
    """How a simulation ended."""

    model: str
    rounds: int
    updates: int
    seconds: float


class SimulationFailed(UserError):
    """A process of the pool ended before the federation did; the message says which and how."""


def prepared(config: Federation, folder: Path, rounds: int, seed: int) -> Federation:
    """`config` for a simulation from `seed` that keeps everything in `folder`, which is new."""
    if (folder / "secret").exists():
        raise FileExistsError(f"{folder} has a simulation already; remove it, or say --out")
    bucket = config.bucket
    if "://" not in bucket.url:
        bucket = replace(bucket, url=str(folder.absolute() / "bucket"))
    return replace(
        config,
        seed=sha256(f"folkmoot simulation {seed}".encode()).hexdigest(),
        rounds=replace(config.rounds, rounds=rounds or config.rounds.rounds),
        server=replace(config.server, state=str(folder.absolute()), host="127.0.0.1", port=0),
        bucket=bucket,
    )


def simulated(config: Federation, count: int) -> Federation:
    """`config` for `count` virtual participants that nobody loses."""
    # As many as the rules' share of them; min_participants at that share needs all to be there.
    least = max(1, floor(count * Fraction(repr(config.rounds.fraction_participants))))
    rules = replace(config.rounds, min_participants=least, spares=count, heartbeat_timeout=PATIENCE)
    return replace(config, rounds=rules)


async def simulate(
    config: Federation,
    participant: str,
    count: int,
    processes: int,
    on_update: Callable[[int], None] = lambda done: None,
) -> Simulated:
    """Run it; `on_update` hears how many updates were counted so far."""
    config, began, counted = simulated(config, count), time.monotonic(), 0

    class Watched(Coordinator):
        def _act(self, step: Step) -> None:
            nonlocal counted
            super()._act(step)
            for effect in step.effects:
                if isinstance(effect, m.Counted) and not effect.again:
                    counted += 1
                    on_update(counted)

    def make(federation: Federation) -> Coordinator:
        return Watched(federation, journal=PassingJournal)

    async with serving(config, make) as server:
        pool = [
            await _start(_share(server, participant, count, first, processes))
            for first in range(min(processes, count))
        ]
        try:
            await _until_finished(server, pool)
        finally:
            await _end(pool)
        store, last = server.coordinator.store, server.coordinator.state.round
        path = str(store.global_path(last))
    return Simulated(path, last, counted, time.monotonic() - began)


class PassingJournal(Journal):
    """A simulation that ends with its machine is begun again: its records need no sync."""

    synced = False


def _share(server: RunningServer, participant: str, count: int, first: int, step: int) -> Share:
    coordinator = server.coordinator
    return Share(
        address=server.address,
        run_id=coordinator.config.run_id,
        coordinator=coordinator.identity.public.hex(),
        participant=participant,
        count=count,
        first=first,
        step=step,
        seed=coordinator.secret.hex(),
    )


async def _start(share: Share) -> asyncio.subprocess.Process:
    module = "folkmoot.federated.simulation.virtual"
    said = msgspec.json.encode(share).decode()
    return await asyncio.create_subprocess_exec(sys.executable, "-m", module, said)


async def _until_finished(server: RunningServer, pool: list[asyncio.subprocess.Process]) -> None:
    """Until the last round, or until a process of the pool ends before it."""
    finished = asyncio.ensure_future(server.finished())
    ends = [asyncio.ensure_future(process.wait()) for process in pool]
    try:
        await asyncio.wait([finished, *ends], return_when=asyncio.FIRST_COMPLETED)
        if not finished.done():
            codes = [process.returncode for process in pool if process.returncode is not None]
            raise SimulationFailed(
                f"a process with virtual participants ended with {codes[0]} before the last round; "
                "its own words are above"
            )
        finished.result()
        await asyncio.wait(ends, timeout=60)
    finally:
        for waiting in (finished, *ends):
            waiting.cancel()


async def _end(pool: list[asyncio.subprocess.Process]) -> None:
    for process in pool:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    await asyncio.gather(*(process.wait() for process in pool))
