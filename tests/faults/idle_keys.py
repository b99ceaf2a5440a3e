"""Keys that join a run, show that they live, and do nothing else: a crowd that costs nothing."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from folkmoot.authority import Unreachable
from folkmoot.authority.open import open_authority
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity

EVERY = 1.0  # seconds between two signs of life


@contextmanager
def idle_keys(count: int, address: str, run_id: str) -> Iterator[set[bytes]]:
    """Their public keys, while they are there."""
    identities = [Identity.random() for _ in range(count)]
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    crowd = asyncio.run_coroutine_threadsafe(_crowd(identities, address, run_id), loop)
    try:
        yield {identity.public for identity in identities}
    finally:
        crowd.cancel()
        asyncio.run_coroutine_threadsafe(_ended(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _crowd(identities: list[Identity], address: str, run_id: str) -> None:
    async with asyncio.TaskGroup() as group:
        for identity in identities:
            group.create_task(_idle(identity, address, run_id))


async def _idle(identity: Identity, address: str, run_id: str) -> None:
    authority = open_authority(address, run_id, identity)
    try:
        while True:
            try:
                if await authority.submit(m.HealthCheck(identity.public)) is not None:
                    await authority.submit(m.Join(identity.public, run_id))
            except Unreachable:
                pass  # it comes again
            await asyncio.sleep(EVERY)
    finally:
        await authority.close()


async def _ended() -> None:
    """When all other tasks of the loop are."""
    mine = asyncio.current_task()
    await asyncio.gather(
        *(task for task in asyncio.all_tasks() if task is not mine), return_exceptions=True
    )
