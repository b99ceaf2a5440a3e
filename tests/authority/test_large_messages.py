"""Large messages go out a few at a time, whoever reads or does not."""

import asyncio

from folkmoot.authority.server.large_messages import LARGE, PLACES, LargeMessages


async def stall(sending: LargeMessages, until: asyncio.Event) -> None:
    """Send a large message to a reader that has stopped."""
    async with sending.passing(LARGE):
        await until.wait()


async def test_only_so_many_large_messages_are_on_their_way_at_once() -> None:
    sending, on_their_way, most = LargeMessages(), 0, 0

    async def send() -> None:
        nonlocal on_their_way, most
        async with sending.passing(LARGE):
            on_their_way += 1
            most = max(most, on_their_way)
            await asyncio.sleep(0)
            on_their_way -= 1

    await asyncio.gather(*(send() for _ in range(PLACES * 3)))
    assert most == PLACES


async def test_readers_that_stopped_give_their_places_to_others() -> None:
    sending, stopped = LargeMessages(), asyncio.Event()
    stalled = [asyncio.create_task(stall(sending, stopped)) for _ in range(PLACES)]
    async with asyncio.timeout(120), sending.passing(LARGE):
        pass
    stopped.set()
    await asyncio.gather(*stalled)
    # And no place was given back twice.
    inside = [asyncio.create_task(stall(sending, stopped)) for _ in range(PLACES + 1)]
    stopped.clear()
    await asyncio.sleep(0)
    assert sending.free == 0
    stopped.set()
    await asyncio.gather(*inside)
    assert sending.free == PLACES


async def test_small_messages_never_wait() -> None:
    sending, stopped = LargeMessages(), asyncio.Event()
    stalled = [asyncio.create_task(stall(sending, stopped)) for _ in range(PLACES * 4)]
    await asyncio.sleep(0)
    async with sending.passing(LARGE - 1):
        assert sending.free == 0
    stopped.set()
    await asyncio.gather(*stalled)
