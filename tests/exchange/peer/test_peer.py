"""Peers on loopback: who may connect, what arrives, and what a neighbour cannot do."""

import os

import pytest

from exchange.peer.world import (
    members,
    run,
)
from folkmoot.exchange.peer import (
    Unavailable,
)


def test_a_small_body_rides_in_its_message_and_reaches_everybody_once() -> None:
    async def test() -> None:
        async with members(4) as peers:
            body = os.urandom(6000)
            sent = peers[0].publish(7, b"head", body)
            for peer in peers[1:]:
                message = await peer.receive()
                assert (message.origin, message.round, message.head) == (peers[0].id, 7, b"head")
                assert message == sent
                assert message.content.blob is None
                assert await peer.body(message, 6000) == body
            assert not any(peer._inbox for peer in peers)

    run(test())


def test_a_large_body_is_announced_and_fetched() -> None:
    async def test() -> None:
        async with members(3) as peers:
            body = os.urandom(3_000_000)
            peers[0].publish(1, b"", body)
            for peer in peers[1:]:
                message = await peer.receive()
                assert message.content.body == b""
                assert await peer.body(message, 3_000_000) == body

    run(test())


def test_a_body_over_the_callers_limit_is_not_fetched() -> None:
    async def test() -> None:
        async with members(2) as peers:
            peers[0].publish(1, b"", os.urandom(300_000))
            message = await peers[1].receive()
            with pytest.raises(Unavailable, match="at most 100000 were expected"):
                await peers[1].body(message, 100_000, seconds=5)

    run(test())
