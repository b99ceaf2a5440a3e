"""Who is connected: one link per member, dialled again whenever it is gone.

- Only members are admitted; whoever stops being one is hung up on.
- Both sides may dial. The smaller key does so at once, the larger after a grace, so most pairs
  make one connection. When two meet, the one that the smaller key dialled stays; both sides see
  that alike.
- A process that was started again has another `life`: its new connection replaces whatever there
  was.
- Whoever breaks the rules is refused for a while, twice as long each time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import NamedTuple

from iroh import BiStream, Connection, Endpoint, Incoming, IrohError

from folkmoot.exchange.peer import events, wire
from folkmoot.exchange.peer.config import PeerConfig
from folkmoot.exchange.peer.describe_error import describe_error
from folkmoot.exchange.peer.endpoint import to_dial
from folkmoot.exchange.peer.link import GUILTY, Code, Link, LinkTraffic
from folkmoot.exchange.peer.rate_limit import RateLimiter
from folkmoot.host.tasks import end_tasks

STRANGERS = b""
"""Under this key `traffic` counts everybody who never was a member."""
HANDSHAKES = 64
"""How many strangers may be in a handshake with us at once."""


class Seat:
    """A member's place: where to dial it, and its link while there is one."""

    def __init__(self, peer: bytes, address: bytes) -> None:
        self.peer = peer
        self.address = address
        self.link: Link | None = None
        self.filled = asyncio.Event()
        self.empty = asyncio.Event()
        self.empty.set()
        self.news = asyncio.Event()  # set when it is worth dialling before the back-off is over
        self.dialler: asyncio.Task[None] | None = None

    def take(self, link: Link | None) -> None:
        self.link = link
        (self.filled if link else self.empty).set()
        (self.empty if link else self.filled).clear()
        self.news.set()


class Hooks(NamedTuple):
    """What the roster's owner does with links."""

    up: Callable[[Link], None]
    down: Callable[[Link], None]
    frame: Callable[[Link, wire.Frame], None]
    request: Callable[[Link, BiStream], Awaitable[None]]
    event: Callable[[events.PeerEvent], None]


class Roster:
    """The links of one peer."""

    def __init__(
        self, endpoint: Endpoint, hello: wire.Hello, config: PeerConfig, hooks: Hooks
    ) -> None:
        self.me = endpoint.id().to_bytes()
        self._endpoint, self._hello, self._config, self._hooks = endpoint, hello, config, hooks
        self._seats: dict[bytes, Seat] = {}
        self._known: set[bytes] = set()  # everybody who ever was a member
        self._shunned: dict[bytes, tuple[float, int]] = {}  # until when, how often
        self._past: dict[bytes, LinkTraffic] = {}  # of links that are over
        self._tasks: set[asyncio.Task[None]] = set()
        self._live: set[Link] = set()
        self._welcomes = 0
        self._stranger_news = RateLimiter(1, 20)  # many may knock; the log shall stay readable
        self._loop = asyncio.get_running_loop()
        self._spawn(self._accept())

    def link(self, peer: bytes) -> Link | None:
        seat = self._seats.get(peer)
        return seat.link if seat else None

    def links(self) -> list[Link]:
        return [seat.link for seat in self._seats.values() if seat.link]

    def seat(self, peer: bytes) -> Seat | None:
        return self._seats.get(peer)

    def traffic(self) -> dict[bytes, LinkTraffic]:
        """By peer, over all connections with it so far."""
        total = dict(self._past)
        for link in self._live:
            self._count(link, total)
        return total

    def _count(self, link: Link, into: dict[bytes, LinkTraffic]) -> None:
        peer = link.peer if link.peer in self._known else STRANGERS
        into[peer] = into.get(peer, LinkTraffic()) + link.traffic()

    async def set_members(self, members: Mapping[bytes, bytes]) -> None:
        """Admit and dial exactly these (without ourselves)."""
        wanted = {peer: address for peer, address in members.items() if peer != self.me}
        self._known |= wanted.keys()
        for peer in [p for p in self._seats if p not in wanted]:
            gone = self._seats.pop(peer)
            await self._leave(gone, Code.NotAMember, "it is no member any more")
        for peer, address in wanted.items():
            seat = self._seats.get(peer)
            if seat is None:
                seat = self._seats[peer] = Seat(peer, address)
                seat.dialler = self._spawn(self._keep_connected(seat))
            seat.address = address
            seat.news.set()

    def blame(self, peer: bytes, code: Code, reason: str) -> None:
        """Hang up on a peer that broke the rules, and refuse it for a while."""
        if link := self.link(peer):
            link.close(code, reason)

    async def close(self) -> None:
        while self._seats:
            _, seat = self._seats.popitem()
            await self._leave(seat, Code.Bye, "goodbye")
        await end_tasks(self._tasks)

    # Dialling.

    async def _keep_connected(self, seat: Seat) -> None:
        config, failures = self._config, 0
        while True:
            began = self._loop.time()
            await seat.empty.wait()
            if self._loop.time() - began > config.backoff_limit:
                failures = 1  # it lasted; one that does not is dialled ever more rarely
            grace = 0.0 if self.me < seat.peer else config.grace
            await _wait(seat.filled, max(grace, self._shunned_for(seat.peer)))
            if failures:
                pause = config.backoff * 2 ** min(failures - 1, 16)
                await _wait(seat.news, min(pause, config.backoff_limit))
            seat.news.clear()
            if seat.link is None and not self._shunned_for(seat.peer):
                await self._dial(seat)
                failures += 1

    async def _dial(self, seat: Seat) -> None:
        try:
            async with asyncio.timeout(self._config.dial_time):
                address = to_dial(seat.peer, seat.address)
                connection = await self._endpoint.connect(address, wire.ALPN)
        except (IrohError, ValueError, TimeoutError) as error:
            self._hooks.event(events.DialFailed(seat.peer, describe_error(error)))
        else:
            await self._admit(connection, dialled=True)

    # Accepting.

    async def _accept(self) -> None:
        room = asyncio.Semaphore(HANDSHAKES)
        while (incoming := await self._endpoint.accept_next()) is not None:
            await room.acquire()
            self._spawn(self._welcome(incoming, room))

    async def _welcome(self, incoming: Incoming, room: asyncio.Semaphore) -> None:
        self._welcomes += 1
        try:
            async with asyncio.timeout(self._config.greet_time):
                crowded = self._welcomes > HANDSHAKES // 2
                if crowded and not await incoming.remote_addr_validated():
                    await incoming.retry()  # a forged sender will not come back
                    return
                connection = await (await incoming.accept()).connect()
            await self._admit(connection, dialled=False)
        except (IrohError, TimeoutError):
            return  # a stranger that could not finish its handshake is not news
        finally:
            self._welcomes -= 1
            room.release()

    async def _admit(self, connection: Connection, dialled: bool) -> None:
        """Seat a new connection, or close it with the reason."""
        link = Link(connection, self._config, dialled)
        self._live.add(link)
        try:
            refusal = self._refusal(link.peer)
            if refusal is None:
                async with asyncio.timeout(self._config.greet_time):
                    theirs = await link.greet(self._hello)
                refusal = self._refusal(link.peer)  # members may have changed meanwhile
                if theirs.topic != self._hello.topic:
                    refusal = (Code.WrongRun, "it belongs to another run")
        except wire.Malformed as error:
            refusal = (Code.Malformed, f"it sent {error}")
        except (IrohError, TimeoutError):
            # Also how a dialler learns that it was turned away.
            refusal = (Code.Stalled, connection.close_reason() or "it did not greet")
        if refusal is not None:
            self._turn_away(link, *refusal)
        else:
            self._seat(link)

    def _refusal(self, peer: bytes) -> tuple[Code, str] | None:
        if peer not in self._seats:
            return Code.NotAMember, "it is not a member"
        if self._shunned_for(peer):
            return Code.Shunned, "it broke the rules a moment ago"
        return None

    def _turn_away(self, link: Link, code: Code, reason: str) -> None:
        link.close(code, reason)
        self._note_guilt(link)
        self._retire(link)
        if link.dialled:
            self._hooks.event(events.DialFailed(link.peer, reason))
        elif link.peer in self._known or self._stranger_news.take(1, self._loop.time()):
            self._hooks.event(events.TurnedAway(link.peer, reason))

    def _seat(self, link: Link) -> None:
        seat = self._seats[link.peer]
        old = seat.link
        same_life = old is not None and old.code is None and old.life == link.life
        if old and same_life and self._preferred(old) and not self._preferred(link):
            link.close(Code.Duplicate, "another connection of this pair stays")
            self._retire(link)
            return
        seat.take(link)
        if old:
            self._hooks.down(old)
            old.close(Code.Duplicate, "a newer connection took its place")
        self._hooks.event(events.Connected(link.peer, link.dialled))
        self._hooks.up(link)
        self._spawn(self._run(seat, link))

    def _preferred(self, link: Link) -> bool:
        return link.dialled == (self.me < link.peer)

    async def _run(self, seat: Seat, link: Link) -> None:
        def on_frame(frame: wire.Frame) -> None:
            if seat.link is link:
                self._hooks.frame(link, frame)

        try:
            reason = await link.run(on_frame, lambda stream: self._hooks.request(link, stream))
        finally:
            self._retire(link)
            current = seat.link is link
            if current:
                seat.take(None)
                self._hooks.down(link)
        self._note_guilt(link)
        if current:
            self._hooks.event(events.Disconnected(link.peer, reason))

    # Leaving.

    async def _leave(self, seat: Seat, code: Code, reason: str) -> None:
        if seat.dialler:
            seat.dialler.cancel()
        if seat.link:
            seat.link.close(code, reason)
            await seat.empty.wait()

    def _retire(self, link: Link) -> None:
        if link in self._live:
            self._live.discard(link)
            self._count(link, self._past)

    def _note_guilt(self, link: Link) -> None:
        if link.code in GUILTY:
            _, strikes = self._shunned.get(link.peer, (0.0, 0))
            until = self._loop.time() + self._config.shun * 2 ** min(strikes, 10)
            self._shunned[link.peer] = (until, strikes + 1)
            self._hooks.event(events.Misbehaved(link.peer, link.reason))

    def _shunned_for(self, peer: bytes) -> float:
        until, _ = self._shunned.get(peer, (0.0, 0))
        return max(0.0, until - self._loop.time())

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event, or until time is up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
