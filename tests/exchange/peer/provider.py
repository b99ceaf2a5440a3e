"""A provider in a process of its own, to be killed.

    python provider.py SECRET TOPIC SIZE ID ADDRESS

It prints its id and address, offers SIZE known bytes, and serves the member ID until it is ended.
"""

import asyncio
import sys

from folkmoot.exchange.peer import Peer


def known_bytes(size: int) -> bytes:
    return bytes(range(251)) * (size // 251 + 1)


async def main(secret: str, topic: str, size: str, member: str, address: str) -> None:
    peer = await Peer.open(bytes.fromhex(secret), bytes.fromhex(topic))
    peer.put(known_bytes(int(size)))
    await peer.members({bytes.fromhex(member): bytes.fromhex(address)})
    print(peer.id.hex(), peer.address.hex(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
