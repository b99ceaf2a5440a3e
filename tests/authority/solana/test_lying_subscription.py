"""A node whose subscription tells nonsense, floods, makes changes up or leads elsewhere."""

import asyncio
import json
from itertools import count
from types import SimpleNamespace

import pytest
from websockets.asyncio.server import ServerConnection

from authority.any_run import A, join
from authority.solana.localnet_run import connected, on_chain
from authority.solana.lying_node import (
    DEEP,
    account_told,
    lying,
    raw_node,
    true_account,
    with_number,
)
from folkmoot.authority.solana import follower
from folkmoot.authority.solana.localnet.serve import Localnet
from folkmoot.core.coordinator import messages as m


def told_by_subscription(net: Localnet, data: bytes) -> str:
    told = account_told(net, data)["result"]
    said = {"method": "accountNotification", "params": {"result": told, "subscription": 1}}
    return json.dumps(said)


NOISE: list[str | bytes] = [
    "", "{", "7", "[]", DEEP.decode(), b"\xff", "x" * 2_000_000,
    '{"method":"accountNotification","params":7}',
    '{"method":"accountNotification","params":{"result":{"context":{"slot":1},"value":null}}}',
    '{"method":"accountNotification","params":{"result":{"context":{"slot":1},"value":'
    '{"owner":"x","data":[]}}}}',
]  # fmt: skip


async def test_a_subscription_that_makes_up_change_after_change_has_half_of_our_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, clock = asyncio.Event(), count(0, 10**6)  # each message takes a million seconds
    monkeypatch.setattr(follower, "time", SimpleNamespace(monotonic=lambda: next(clock)))

    async def make_up(socket: ServerConnection) -> None:
        await socket.recv()
        for number in range(1, 6):
            data = with_number(true_account(net), 10**6 + number, "sequence")
            await socket.send(told_by_subscription(net, data))
        told.set()
        await socket.wait_closed()

    async with (
        on_chain() as net,
        lying(net, tell=make_up) as node,
        connected(net, A, node.url) as authority,
        asyncio.timeout(120),
    ):
        await anext(authority.watch())
        await told.wait()
        for _ in range(20):
            await net.next_slot.wait()
        assert int(authority._record["sequence"]) == 10**6 + 1


async def test_a_subscription_that_tells_nonsense_is_ended() -> None:
    """And what it would have told is heard from another, or asked for."""
    noise, ended = iter(NOISE), asyncio.Event()

    async def tell(socket: ServerConnection) -> None:
        await socket.recv()
        try:
            await socket.send(next(noise))
            await socket.wait_closed()
        finally:
            ended.set()

    async with on_chain(min_clients=1, max_clients=1) as net, lying(net, tell=tell) as node:
        for _ in NOISE:
            ended.clear()
            async with asyncio.timeout(120), connected(net, A, node.url) as authority:
                await anext(authority.watch())
                await ended.wait()
                assert authority.last_error == ""


async def test_a_subscription_that_floods_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "STALE_MAX", 200)
    floods, ended = 0, asyncio.Event()

    async def flood(socket: ServerConnection) -> None:
        nonlocal floods
        floods += 1
        await socket.recv()
        try:
            while True:
                await socket.send(old)
                await asyncio.sleep(0)  # the client shares this loop
        finally:
            ended.set()

    async with on_chain() as net:
        old = told_by_subscription(net, true_account(net))
        async with lying(net, tell=flood) as node, connected(net, A, node.url) as authority:
            async with asyncio.timeout(120):
                assert await authority.submit(join(A)) is None
                await ended.wait()
            assert await authority.submit(m.Withdraw(A.public)) is None
            _, received = authority.traffic()
    else_told = 2_000_000  # answers, and what the honest node tells
    assert received < floods * (follower.STALE_MAX + 2) * len(old) + else_told


async def test_a_subscription_is_not_looked_for_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    async def elsewhere(socket: ServerConnection) -> None:
        raise AssertionError("the client was led here")

    async def redirect(writer: asyncio.StreamWriter) -> None:
        where = f"ws://127.0.0.1:{other.port + 1}/"
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {where}\r\n\r\n".encode())
        await writer.drain()
        asked.set()

    async with (
        on_chain() as net,
        lying(net, tell=elsewhere) as other,
        raw_node(redirect) as url,
        connected(net, A) as authority,
    ):
        monkeypatch.setattr(follower, "websocket_url", lambda _: url.replace("http", "ws"))
        assert await authority.submit(join(A)) is None
        async with asyncio.timeout(120):
            await asked.wait()
            await authority.submit(m.Withdraw(A.public))
