"""Every byte is counted, and there are few beyond the updates themselves."""

import asyncio
import os
from pathlib import Path

import pytest

from folkmoot.exchange.peer import Peer, PeerConfig, TurnedAway
from support.namespace import run_alone
from support.peers import heard, members, roster, strangers, told


def test_traffic_is_what_the_kernel_counts() -> None:
    printed = run_alone(Path(__file__).with_name("count_traffic.py"), timeout=240)
    counted, kernel = map(int, printed.split())
    assert abs(counted - kernel) < 0.05 * kernel


async def _rounds(peers: list[Peer], rounds: range, size: int) -> None:
    for round_ in rounds:
        for peer in peers:
            peer.publish(round_, b"", os.urandom(size))
        for messages in await asyncio.gather(*(heard(p, len(peers) - 1) for p in peers)):
            assert {message.round for message in messages} == {round_}
        for peer in peers:
            peer.expire(round_ - 1)


@pytest.mark.parametrize(("count", "size"), [(3, 6000), (6, 6000), (3, 50_000)])
async def test_a_round_costs_at_most_a_quarter_more_than_its_updates(count: int, size: int) -> None:
    """Everything on the network, with acknowledgements and digests, once peers are connected."""
    async with members(count, PeerConfig()) as peers:
        await _rounds(peers, range(5), size)  # the path's largest packet is found meanwhile
        before = sum(t.sent for peer in peers for t in peer.traffic().values())
        await _rounds(peers, range(5, 35), size)
        after = sum(t.sent for peer in peers for t in peer.traffic().values())
        assert (after - before) / (30 * count * (count - 1) * size) < 1.25


async def test_traffic_of_strangers_is_counted_together() -> None:
    async with members(2) as peers, strangers(2) as others:
        for stranger in others:
            await stranger.members(roster([peers[0], stranger]))
            await told(peers[0]).until(TurnedAway, lambda e, s=stranger: e.peer == s.id)
        traffic = peers[0].traffic()
        assert set(traffic) == {b"", peers[1].id}
        assert traffic[b""].received > 0
