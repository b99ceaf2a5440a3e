"""Four peers on a line that loses and delays packets, alone in a network namespace.

Run by test_bad_line.py under `unshare -rn`; ends with 0 when everybody got everything.
"""

import asyncio
import os

from folkmoot.exchange.peer import Peer, PeerConfig
from support.peers import heard, members

ROUNDS, SMALL, LARGE = 8, 6_000, 500_000


async def get_all(peer: Peer, count: int) -> list[bytes]:
    messages = await heard(peer, count)
    return sorted([await peer.body(message, LARGE) for message in messages])


async def main() -> None:
    async with members(4, PeerConfig()) as peers:
        for round_ in range(ROUNDS):
            sent = {}
            for position, peer in enumerate(peers):
                sent[peer] = os.urandom(LARGE if position == round_ % 4 else SMALL)
                peer.publish(round_, b"", sent[peer])
            got = await asyncio.gather(*(get_all(peer, 3) for peer in peers))
            for peer, bodies in zip(peers, got, strict=True):
                assert bodies == sorted(sent[other] for other in peers if other is not peer)
            for peer in peers:
                peer.expire(round_)
        lost = [link._connection.stats().lost_packets for p in peers for link in p._roster.links()]
        print(f"{sum(lost)} packets were lost on the way")


if __name__ == "__main__":
    asyncio.run(main())
