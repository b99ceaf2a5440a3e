"""Peers on loopback, side by side with the bare transport. `make bench-peer`

content   50 MB by name (verified, in pieces) beside the same bytes down one bare iroh stream,
          each between two processes
wire      everything on the network for a round of updates, over updates × receivers
delay     from publishing a message to the last of its receivers
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import Coroutine

from iroh import Connection

import results
from folkmoot.exchange.peer import Peer, PeerConfig, uniffi_copy
from folkmoot.exchange.peer.address import encode_address
from folkmoot.exchange.peer.endpoint import bind, reachable_at, to_dial
from folkmoot.exchange.peer.wire import ALPN

SIZE = 50_000_000
BLOCK = 1 << 18
TOPIC = bytes(32)


def content() -> bytes:
    return bytes(range(256)) * (SIZE // 256) + bytes(SIZE % 256)


async def provide(member: bytes, address: bytes) -> None:
    """In a process of its own: the content through a peer, and again down a bare stream."""
    peer = await Peer.open(os.urandom(32), TOPIC)
    name = peer.put(content())
    await peer.members({member: address})
    bare = await bind(os.urandom(32), PeerConfig())
    bare_address = encode_address(await reachable_at(bare, PeerConfig()))
    print(peer.id.hex(), peer.address.hex(), name.hex(), bare.id().to_bytes().hex(),
          bare_address.hex(), flush=True)  # fmt: skip
    while (incoming := await bare.accept_next()) is not None:
        await pour(await (await incoming.accept()).connect())


async def pour(connection: Connection) -> None:
    stream, data = await connection.open_uni(), content()
    for at in range(0, SIZE, BLOCK):
        await stream.write_all(data[at : at + BLOCK])
    await stream.finish()
    await connection.closed()


async def measure_content() -> dict[str, float]:
    """How fast content comes by name, in parts of the bare stream's speed."""
    here = await Peer.open(os.urandom(32), TOPIC)
    command = [sys.executable, __file__, "provide", here.id.hex(), here.address.hex()]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    words = (await process.stdout.readline()).split()
    provider, address, name, bare, bare_address = (bytes.fromhex(w.decode()) for w in words)
    await here.members({provider: address})
    await here.connected([provider], 20)
    ours, theirs, ratios = [], [], {}
    for _ in range(5):
        theirs.append(await timed(drink(bare, bare_address)))
        ours.append(await timed(fetch(here, provider, name)))
    for what, best in (("seconds", 0), ("CPU seconds of the receiver", 1)):
        mine, bare_best = (min(runs, key=lambda run: run[best])[best] for runs in (ours, theirs))
        print(f"content  50 MB, best {what}: by name {mine:.2f}   bare stream {bare_best:.2f}   "
              f"{SIZE / 1e6 / mine:.0f} and {SIZE / 1e6 / bare_best:.0f} MB/s   "
              f"ratio {bare_best / mine:.2f}")  # fmt: skip
        ratios[what] = results.significant(bare_best / mine, 2)
    process.kill()
    await process.wait()
    await here.close()
    return ratios


async def timed(work: Coroutine[None, None, None]) -> tuple[float, float]:
    """Wall and CPU seconds of something."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work
    return time.perf_counter() - wall, time.process_time() - cpu


async def fetch(here: Peer, provider: bytes, name: bytes) -> None:
    await here.get(name, [provider], SIZE)
    here.drop(name)


async def drink(peer: bytes, address: bytes) -> None:
    """The same bytes, unchecked, from a fresh connection."""
    endpoint = await bind(os.urandom(32), PeerConfig())
    connection = await endpoint.connect(to_dial(peer, address), ALPN)
    stream, left, data = await connection.accept_uni(), SIZE, bytearray()
    while left:
        data += await stream.read_exact(min(left, BLOCK))
        left = SIZE - len(data)
    connection.close(0, b"")
    await endpoint.close()


async def measure_wire(count: int, size: int, rounds: int) -> dict[str, float]:
    peers = [await Peer.open(os.urandom(32), TOPIC) for _ in range(count)]
    roster = {peer.id: peer.address for peer in peers}
    for peer in peers:
        await peer.members(roster)
    for peer in peers:
        await peer.connected(roster, 20)

    async def hear(peer: Peer) -> None:
        for _ in range(count - 1):
            await peer.body(await peer.receive(), size)

    def sent() -> int:
        return sum(t.sent for peer in peers for t in peer.traffic().values())

    delays, settled = [], 0
    for round_ in range(rounds):
        if round_ == rounds // 4:
            settled = sent()
        began = time.perf_counter()
        for peer in peers:
            peer.publish(round_, bytes(100), os.urandom(size))
        await asyncio.gather(*map(hear, peers))
        delays.append(time.perf_counter() - began)
        for peer in peers:
            peer.expire(round_ - 2)
        await asyncio.sleep(1.2)  # a round lasts: digests are exchanged, too
    update = count * (count - 1) * size
    steady = (sent() - settled) / (update * (rounds - rounds // 4))
    print(f"wire     {count} peers, {size / 1000:g} KB updates: {steady:.3f} × a round; "
          f"{sent() / (update * rounds):.3f} × over {rounds} rounds with connecting   "
          f"delay {1000 * statistics.median(delays):.0f} ms")  # fmt: skip
    await asyncio.gather(*(peer.close() for peer in peers))
    return {
        "bytes sent, times the least": results.significant(steady),
        "delay, ms": round(1000 * statistics.median(delays)),
    }


async def main() -> None:
    uniffi_copy.install()
    if sys.argv[1:2] == ["provide"]:
        await provide(bytes.fromhex(sys.argv[2]), bytes.fromhex(sys.argv[3]))
        return
    content_speed, rounds = await measure_content(), {}
    for count, size in ((3, 6_000), (8, 6_000), (3, 60_000), (3, 600_000)):
        rounds[f"{count} peers, {size // 1000} KB"] = await measure_wire(count, size, rounds=20)
    figures = {"beside_a_bare_stream": content_speed, "a_round": rounds}
    results.write("peer", "make bench-peer", figures)


if __name__ == "__main__":
    asyncio.run(main())
