"""A provider in a process of its own, to be killed.

    python provider.py SECRET TOPIC SIZE ID ADDRESS

It prints its id and address, offers SIZE known bytes, and serves the member ID until it is ended.
"""

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from folkmoot.exchange.peer import Peer


@asynccontextmanager
async def provider_process(here: Peer, size: int) -> AsyncIterator[tuple[Process, bytes, bytes]]:
    """Such a process that has `here` for a member; its id and address."""
    secret = os.urandom(32).hex()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, secret, here._topic.hex(), str(size)),
        *(here.id.hex(), here.address.hex()),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).split()
        id_, address = (bytes.fromhex(word.decode()) for word in line)
        yield process, id_, address
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def known_bytes(size: int) -> bytes:
    return bytes(range(251)) * (size // 251 + 1)


async def main(secret: str, topic: str, size: str, member: str, address: str) -> None:
    peer = await Peer.open(bytes.fromhex(secret), bytes.fromhex(topic))
    peer.put(known_bytes(int(size)))
    await peer.members({bytes.fromhex(member): bytes.fromhex(address)})
    peer.publish(1, b"hello from another process")
    print(peer.id.hex(), peer.address.hex(), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
