"""A member that speaks the protocol by hand, and so can break every rule of it."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from iroh import BiStream, Connection, Endpoint, RecvStream, SendStream

from folkmoot.exchange.peer import Connected, Peer, uniffi_copy, wire
from folkmoot.exchange.peer.address import Address, encode_address
from folkmoot.exchange.peer.endpoint import bind, reachable_at, to_dial
from support.peers import QUICK, TOPIC, roster, told


class Rogue:
    """Its key is a member's; what it sends is up to the test."""

    def __init__(self, endpoint: Endpoint, address: bytes, secret: bytes) -> None:
        self.endpoint, self.address, self.secret = endpoint, address, secret
        self.id = endpoint.id().to_bytes()
        self.connection: Connection
        self.send: SendStream
        self.recv: RecvStream

    async def dial(self, peer: Peer) -> None:
        address = to_dial(peer.id, peer.address)
        self.connection = await self.endpoint.connect(address, wire.ALPN)

    async def greet(self) -> None:
        """Be a good member, so far."""
        self.send = await self.connection.open_uni()
        await self.say(wire.Hello(TOPIC, os.urandom(8)))
        self.recv = await self.connection.accept_uni()
        await read(self.recv)

    async def say(self, frame: wire.Frame) -> None:
        await self.send.write_all(wire.encode(frame))

    async def ask(self, data: bytes) -> BiStream:
        stream = await self.connection.open_bi()
        await stream.send().write_all(data)
        return stream

    async def hung_up(self) -> str:
        """Why the other side hung up."""
        return await self.connection.closed()


async def read(stream: RecvStream) -> bytes:
    length = int.from_bytes(await stream.read_exact(4), "little")
    return await stream.read_exact(length)


@asynccontextmanager
async def a_rogue_among(peers: list[Peer], greets: bool = True) -> AsyncIterator[Rogue]:
    """A rogue that is a member to all of `peers`, and connected to the first."""
    uniffi_copy.install()
    secret = os.urandom(32)
    endpoint = await bind(secret, QUICK)
    address = encode_address(await reachable_at(endpoint, QUICK))
    rogue = Rogue(endpoint, address, secret)
    try:
        for peer in peers:
            # Its address is not told, so that it is the one to dial.
            await peer.members(roster(peers) | {rogue.id: encode_address(Address())})
        await rogue.dial(peers[0])
        if greets:
            await rogue.greet()
            await told(peers[0]).until(Connected, lambda event: event.peer == rogue.id)
        yield rogue
    finally:
        await endpoint.close()
