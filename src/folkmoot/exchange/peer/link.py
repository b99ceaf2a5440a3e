"""One connection to one member: frames out and in, requests in, every byte counted.

The link never waits for its peer: frames to send are queued up to a bound, and a peer that does
not read, sends garbage, too much, or nothing at all is hung up on with a code and a reason.
Whoever owns the link awaits `run`, which returns when the connection is over and nothing of it is
left behind.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from enum import IntEnum

import msgspec
from iroh import BiStream, Connection, IrohError, RecvStream, SendStream

from folkmoot.exchange.peer import wire
from folkmoot.exchange.peer.config import PeerConfig
from folkmoot.exchange.peer.describe_error import describe_error
from folkmoot.exchange.peer.rate_limit import RateLimiter
from folkmoot.host.tasks import end_tasks

log = logging.getLogger(__name__)
IP_AND_UDP_HEADER = 28
"""Bytes that IPv4 and UDP add to every datagram."""


SLOWEST = 20_000
"""Bytes a second: whoever is slower than this is as good as stopped."""


class Code(IntEnum):
    """Why a connection was closed, as the other side sees it."""

    Bye = 0
    NotAMember = 1
    Duplicate = 2
    WrongRun = 3
    Malformed = 4
    Flood = 5
    Stalled = 6
    Silent = 7
    Shunned = 8


GUILTY = {Code.Malformed, Code.Flood, Code.WrongRun}
"""After these the peer is refused for a while."""


class LinkTraffic(msgspec.Struct, frozen=True):
    """Bytes on the network with IP and UDP headers, everything included: handshakes, resends."""

    sent: int = 0
    received: int = 0

    def __add__(self, other: "LinkTraffic") -> "LinkTraffic":
        return LinkTraffic(self.sent + other.sent, self.received + other.received)


def time_for(size: int, stall: float) -> float:
    """How long `size` bytes may take: slow lines are welcome, stopped ones are not."""
    return stall + size / SLOWEST


async def read_frame(
    stream: RecvStream, limit: int, stall: float, wait: float | None = None
) -> bytes:
    """The body of the next frame, which must begin within `wait` and then come in time."""
    async with asyncio.timeout(wait):
        head = await stream.read_exact(wire.LENGTH_BYTES)
    length = wire.length_of(head, limit)
    async with asyncio.timeout(time_for(length, stall)):
        return await stream.read_exact(length)


class Link:
    """A connection after its handshake; `peer` is proven by it."""

    def __init__(self, connection: Connection, config: PeerConfig, dialled: bool) -> None:
        self.peer = connection.remote_id().to_bytes()
        self.dialled = dialled
        self.life = b""
        self.code: Code | None = None
        self.reason = ""
        self.rate = 0.0  # bytes a second of content it sent us, lately; 0: not known
        self.busy = 0  # downloads that it is a provider of
        self._connection = connection
        self._config = config
        self._queue: deque[bytes] = deque()
        self._queued = 0
        self._more = asyncio.Event()
        self._send: SendStream | None = None
        self._recv: RecvStream | None = None
        connection.set_max_concurrent_uni_streams(1)
        connection.set_max_concurrent_bi_streams(2 * config.requests)
        connection.set_receive_window(config.receive_window)

    async def greet(self, hello: wire.Hello) -> wire.Hello:
        """Exchange the first frames."""
        self._send = await self._connection.open_uni()
        await self._send.write_all(wire.encode(hello))
        self._recv = await self._connection.accept_uni()
        theirs = wire.decode_control(await read_frame(self._recv, 256, self._config.stall))
        if not isinstance(theirs, wire.Hello):
            raise wire.Malformed(f"{type(theirs).__name__} where Hello was expected")
        self.life = theirs.life
        return theirs

    def send(self, data: bytes) -> None:
        """Queue a frame."""
        if self.code is not None:
            return
        if self._queued + len(data) > self._config.queue_bytes:
            self.close(Code.Stalled, f"it left {self._queued} bytes unread")
            return
        self._queue.append(data)
        self._queued += len(data)
        self._more.set()

    async def open(self) -> BiStream:
        """A stream for one request."""
        return await self._connection.open_bi()

    def close(self, code: Code, reason: str) -> None:
        """Hang up; the first reason stands."""
        if self.code is None:
            self.code, self.reason = code, reason
            self._connection.close(int(code), reason.encode()[:200])

    def release(self) -> None:
        """A download no longer counts on it."""
        self.busy -= 1

    def traffic(self) -> LinkTraffic:
        """What crossed the network so far; right also after the end."""
        stats = self._connection.stats()
        return LinkTraffic(
            stats.udp_tx_bytes + IP_AND_UDP_HEADER * stats.udp_tx_datagrams,
            stats.udp_rx_bytes + IP_AND_UDP_HEADER * stats.udp_rx_datagrams,
        )

    def rtt(self) -> float:
        """In seconds."""
        return (self._connection.rtt() or 0) / 1000

    async def run(
        self,
        on_frame: Callable[[wire.Frame], None],
        on_request: Callable[[BiStream], Awaitable[None]],
    ) -> str:
        """Serve the connection to its end; why it ended."""
        parts = [self._write(), self._read(on_frame), self._accept(on_request), self._watch()]
        tasks = [asyncio.create_task(self._guard(part)) for part in parts]
        try:
            ended = await self._connection.closed()
        finally:
            self.close(Code.Bye, "it is over")
            await end_tasks(tasks)
        return self.reason if self.code != Code.Bye else ended

    async def _guard(self, part: Awaitable[None]) -> None:
        """A broken rule or a broken stream ends the connection, never more than that."""
        try:
            await part
        except wire.Malformed as error:
            self.close(Code.Malformed, f"it sent {error}")
        except TimeoutError:
            self.close(
                Code.Stalled, f"it let {self._config.stall:g} s pass in the middle of a frame"
            )
        except IrohError as error:
            self.close(Code.Bye, f"a stream broke: {describe_error(error)}")
        except Exception:
            # A fault of ours: this neighbour must not be left half served.
            log.exception("serving a neighbour failed")
            self.close(Code.Bye, "it could not be served")

    async def _write(self) -> None:
        assert self._send is not None
        while True:
            await self._more.wait()
            self._more.clear()
            while self._queue:
                # Frames that wait together leave together: fewer packets.
                batch = b"".join(self._queue)
                self._queue.clear()
                async with asyncio.timeout(time_for(len(batch), self._config.stall)):
                    await self._send.write_all(batch)
                self._queued -= len(batch)

    async def _read(self, on_frame: Callable[[wire.Frame], None]) -> None:
        assert self._recv is not None
        config, loop = self._config, asyncio.get_running_loop()
        frames = RateLimiter(config.frames_per_second, 4 * config.frames_per_second)
        size = RateLimiter(config.bytes_per_second, 4 * config.bytes_per_second)
        while True:
            body = await read_frame(self._recv, config.frame_limit, config.stall)
            now = loop.time()
            if not (frames.take(1, now) and size.take(len(body), now)):
                self.close(Code.Flood, "it sends more than is taken from one neighbour")
                return
            on_frame(wire.decode_control(body))

    async def _accept(self, on_request: Callable[[BiStream], Awaitable[None]]) -> None:
        """Requests run side by side, `requests` at a time; others wait in the transport."""
        room = asyncio.Semaphore(self._config.requests)
        open_requests: set[asyncio.Task[None]] = set()

        def ended(task: asyncio.Task[None]) -> None:
            open_requests.discard(task)
            room.release()

        try:
            while True:
                await room.acquire()
                stream = await self._connection.accept_bi()
                task = asyncio.create_task(self._guard(on_request(stream)))
                open_requests.add(task)
                task.add_done_callback(ended)
        finally:
            await end_tasks(open_requests)

    async def _watch(self) -> None:
        """A dead host closes nothing; its packets just stop."""
        last, quiet, step = -1, 0.0, self._config.silence / 5
        while quiet < self._config.silence:
            await asyncio.sleep(step)
            seen = self._connection.stats().udp_rx_datagrams
            quiet = quiet + step if seen == last else 0.0
            last = seen
        self.close(Code.Silent, f"no packet came from it for {self._config.silence:g} s")
