"""A member's place on the network: gossip, content by name, and questions, over iroh connections.

    peer = await Peer.open(secret, topic=gossip_topic(run_id))
    … `peer.address` travels to the others through the coordinator's state …
    await peer.members({id: address, …})          only these may connect
    peer.publish(round, head, body)               everybody gets it, once
    message = await peer.receive()
    body = await peer.body(message, size_limit)   rode in the message, or is fetched
    peer.expire(before=round)                     forget what is over

A client is its Ed25519 key: the endpoint's id, the signer of its messages and its id in the run
are one. Nothing a neighbour sends raises here; it is hung up on, and `on_event` is told why.
"""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec
from iroh import BiStream, Endpoint, SecretKey

from folkmoot.exchange.peer import events, requests, uniffi_copy, wire
from folkmoot.exchange.peer.address import encode_address
from folkmoot.exchange.peer.blob_store import BlobStore
from folkmoot.exchange.peer.config import PeerConfig
from folkmoot.exchange.peer.endpoint import answers, bind, reachable_at
from folkmoot.exchange.peer.fetch import Download
from folkmoot.exchange.peer.gossip import Blame, Deliver, Discard, Effect, GossipNode, Send
from folkmoot.exchange.peer.link import Code, Link, LinkTraffic
from folkmoot.exchange.peer.message import Blob, Content, GossipMessage, seal, unseal
from folkmoot.exchange.peer.roster import Hooks, Roster
from folkmoot.exchange.peer.rpc import A, Answers, NoAnswer, Q, RpcMethod
from folkmoot.host.tasks import end_tasks

CLOSE_TIME = 1.0
OnEvent = Callable[[events.PeerEvent], None]


class Peer:
    """Open one with `Peer.open`, end it with `close` (or use `async with`)."""

    def __init__(
        self, endpoint: Endpoint, secret: bytes, address: bytes, topic: bytes, config: PeerConfig
    ) -> None:
        self.id = endpoint.id().to_bytes()
        self.address = address
        self.config = config
        self.store = BlobStore(config.store_bytes)
        self.on_event: OnEvent = lambda event: None
        self._endpoint, self._topic = endpoint, topic
        self._secret = SecretKey.from_bytes(secret)
        self._answers: Answers = {}
        self._gossip = GossipNode(self.id, lambda sealed: unseal(sealed, topic), config.gossip)
        self._loop = asyncio.get_running_loop()
        self._inbox: deque[GossipMessage] = deque()
        self._arrived = asyncio.Event()
        self._gossip_moved = asyncio.Event()
        hooks = Hooks(self._up, self._down, self._frame, self._request, self._event)
        self._roster = Roster(endpoint, wire.Hello(topic, os.urandom(8)), config, hooks)
        self._clock = asyncio.create_task(self._keep_time())

    @classmethod
    async def open(
        cls,
        secret: bytes,
        topic: bytes,
        config: PeerConfig | None = None,
        on_event: OnEvent | None = None,
    ) -> "Peer":
        """Listen. `secret` is the client's 32-byte Ed25519 seed, `topic` the run's 32 bytes."""
        if len(secret) != 32 or len(topic) != 32:
            raise ValueError("A peer needs a secret of 32 bytes and a topic of 32 bytes.")
        uniffi_copy.install()
        config = config or PeerConfig()
        endpoint = await bind(secret, config)
        address = encode_address(await reachable_at(endpoint, config))
        peer = cls(endpoint, secret, address, topic, config)
        peer.on_event = on_event or peer.on_event
        return peer

    async def close(self) -> None:
        """Say goodbye to everybody and stop."""
        await end_tasks([self._clock])
        await self._roster.close()
        with suppress(TimeoutError):  # somebody we were dialling never answers
            async with asyncio.timeout(CLOSE_TIME):
                await self._endpoint.close()

    async def __aenter__(self) -> "Peer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Members.

    async def answers(self, peer: bytes, address: bytes, seconds: float = 4.0) -> bool:
        """Whether somebody answers for `peer` at its address; a member or not, either way."""
        return await answers(self._endpoint, peer, address, seconds)

    async def members(self, members: Mapping[bytes, bytes]) -> None:
        """Who may connect, and where to dial them: id to address. Everybody else is hung up on."""
        self._gossip.members(members)
        await self._roster.set_members(members)

    def neighbours(self) -> set[bytes]:
        """The members we are connected to."""
        return {link.peer for link in self._roster.links()}

    async def connected(self, peers: Iterable[bytes], seconds: float) -> bool:
        """Wait until we are connected to all of these members; False when time is up."""
        seats = [seat for peer in peers if (seat := self._roster.seat(peer))]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(seat.filled.wait() for seat in seats))
        except TimeoutError:
            return False
        return True

    def traffic(self) -> dict[bytes, LinkTraffic]:
        """Bytes on the network by peer, since `open`; strangers together under b""."""
        return self._roster.traffic()

    def make_room(self, size: int) -> None:
        """Keep up to `size` bytes for others, or what the configuration allows if that is less."""
        self.store.budget = min(size, self.config.store_bytes)

    # Gossip.

    def publish(self, round: int, head: bytes, body: bytes = b"") -> GossipMessage:
        """Tell everybody. A `body` over `inline_limit` is kept here for peers to fetch."""
        if len(head) > self.config.head_limit:
            raise ValueError(f"A head has {len(head)} bytes; {self.config.head_limit} at most.")
        blob = None
        if len(body) > self.config.inline_limit:
            blob, body = Blob(self.put(body, round), len(body)), b""
        message = seal(Content(self.id, round, head, body, blob), self._topic, self._secret)
        self._do(self._gossip.publish(message, self._loop.time()))
        return message

    async def receive(self) -> GossipMessage:
        """The next message that others published (or we did, before this process was started)."""
        while not self._inbox:
            self._arrived.clear()
            await self._arrived.wait()
        return self._inbox.popleft()

    async def body(
        self,
        message: GossipMessage,
        size_limit: int,
        seconds: float = 60.0,
        withheld: Callable[[], None] = lambda: None,
    ) -> bytes:
        """A message's body: it rode along, or it is fetched, from its author if possible.

        `withheld` is called when the author does not give it out; others are still asked.
        """
        blob = message.content.blob
        if blob is None:
            return message.content.body
        links = [link for link in self._roster.links() if link.peer != message.origin]
        others = [link.peer for link in sorted(links, key=lambda link: -link.rate)]
        return await self.get(
            blob.name,
            [message.origin, *others],
            min(size_limit, blob.size),
            message.round,
            width=1,
            seconds=seconds,
            withheld=lambda peer: withheld() if peer == message.origin else None,
        )

    def expire(self, before: int) -> None:
        """Forget messages and content of the rounds below `before`."""
        self._gossip.expire(before)
        self.store.expire(before)
        self._inbox = deque(message for message in self._inbox if message.round >= before)

    # Content.

    def put(self, data: bytes | bytearray | memoryview, round: int | None = None) -> bytes:
        """Offer content to members; its name. It expires with `round`, or stays until dropped."""
        return self.store.put(data, round)

    def drop(self, name: bytes) -> None:
        self.store.drop(name)

    async def get(
        self,
        name: bytes,
        providers: Sequence[bytes],
        size_limit: int,
        round: int | None = None,
        width: int = 4,
        seconds: float = 60.0,
        withheld: Callable[[bytes], None] = lambda peer: None,
    ) -> bytes:
        """Content by name, from the providers that have it.

        Raises Unavailable when nothing of it came for so many `seconds`.
        """
        held = self.store.find(name)
        if held is not None:
            return bytes(held.data)
        link, stall = self._roster.link, self.config.stall
        download = Download(name, size_limit, stall, link, self._blame, withheld)
        data = await download.run([p for p in providers if p != self.id], width, seconds)
        assert download.pieces is not None
        self.store.keep(name, data, download.pieces.hashes, round)
        return data

    # Questions.

    def answer(self, method: RpcMethod[Q, A], handler: Callable[[bytes, Q], Awaitable[A]]) -> None:
        """Answer a method; the handler gets the asker's key and the question."""
        self._answers[method.name] = (method, handler)

    def mute(self, method: RpcMethod[Q, A]) -> None:
        """Answer it no longer."""
        self._answers.pop(method.name, None)

    async def ask(
        self, peer: bytes, method: RpcMethod[Q, A], question: Q, seconds: float = 10.0
    ) -> A:
        """Ask a member; raises CallRefused, or NoAnswer."""
        link = self._roster.link(peer)
        if link is None:
            raise NoAnswer("it is not connected")
        payload = msgspec.msgpack.encode(question)
        reply = await requests.call(link, method.name, payload, seconds, self.config.call_limit)
        return method.read_answer(reply)

    # What the links bring.

    def _up(self, link: Link) -> None:
        self._gossip.connected(link.peer, self._loop.time())
        self._gossip_moved.set()

    def _down(self, link: Link) -> None:
        self._gossip.disconnected(link.peer)
        self._gossip_moved.set()

    def _frame(self, link: Link, frame: wire.Frame) -> None:
        self._do(self._gossip.receive(link.peer, frame, self._loop.time()))

    async def _request(self, link: Link, stream: BiStream) -> None:
        await requests.serve(link, stream, self.store, self._answers, self.config)

    def _event(self, event: events.PeerEvent) -> None:
        self.on_event(event)

    def _blame(self, peer: bytes, reason: str) -> None:
        self._roster.blame(peer, Code.Malformed, reason)

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Send(to, frame):
                    if link := self._roster.link(to):
                        link.send(wire.encode(frame))
                case Deliver(message):
                    self._inbox.append(message)
                    self._arrived.set()
                case Blame(peer, reason):
                    self._roster.blame(peer, Code.Flood, reason)
                case Discard(peer, reason):
                    self._event(events.Ignored(peer, reason))
        self._gossip_moved.set()

    async def _keep_time(self) -> None:
        """Let gossip act when something is due, and look again when anything moved."""
        while True:
            self._gossip_moved.clear()
            due = self._gossip.due()
            try:
                async with asyncio.timeout_at(due):
                    await self._gossip_moved.wait()
            except TimeoutError:
                self._do(self._gossip.tick(self._loop.time()))
