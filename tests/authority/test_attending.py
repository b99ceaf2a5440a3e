"""One client with a key at a time; the one that works is not pushed out."""

import asyncio
from pathlib import Path

import pytest

from authority.any_run import A, join
from authority.served_run import connected, serving
from folkmoot.authority import Denied
from folkmoot.authority.server import client
from folkmoot.authority.server.attending import Attending


async def test_a_second_client_with_the_same_key_is_refused_and_the_first_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "TAKEN_PATIENCE", 0.0)
    async with (
        serving(tmp_path) as server,
        connected(server, A, member=True) as first,
        connected(server, A, member=True) as second,
        asyncio.timeout(60),
    ):
        watching = first.watch()
        await anext(watching)
        assert await first.submit(join(A)) is None
        with pytest.raises(Denied, match="a client with this key takes part already, and stays"):
            await anext(second.watch())
        assert (await anext(watching)).pending.get(A.public)
        async with connected(server, A) as onlooker:  # `folkmoot status` with its key
            await anext(onlooker.watch())


async def test_a_client_that_was_killed_comes_back_with_its_key(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, asyncio.timeout(60):
        for _ in range(2):
            async with connected(server, A, member=True) as life:
                await anext(life.watch())


def test_who_lost_power_is_replaced_once_it_was_silent_for_long_enough() -> None:
    now = 0.0
    attending = Attending(lambda: now)
    assert attending.begin(b"ana", b"life 1", "stream 1", 60.0)
    assert attending.begin(b"ana", b"life 1", "stream 2", 60.0)  # its connection broke
    attending.end(b"ana", "stream 1")
    assert not attending.begin(b"ana", b"life 2", "stream 3", 60.0)
    assert attending.begin(b"ana", b"", "stream 4", 60.0)
    now = 50.0
    attending.heard(b"ana")
    now = 100.0
    assert not attending.begin(b"ana", b"life 2", "stream 3", 60.0)
    now = 111.0
    assert attending.begin(b"ana", b"life 2", "stream 3", 60.0)


async def test_a_clock_that_went_back_by_hours_keeps_nobody_out(tmp_path: Path) -> None:
    async with serving(tmp_path) as server, asyncio.timeout(60):
        async with connected(server, A) as ahead:
            ahead._signer._nonce += 5 * 3_600_000_000
            await anext(ahead.watch())
        async with connected(server, A) as back:
            await anext(back.watch())
            assert await back.submit(join(A)) is None
