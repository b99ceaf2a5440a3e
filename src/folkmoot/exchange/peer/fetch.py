"""Fetch content from whoever has it: from several at once, the fastest first, resumed anywhere.

The first provider that answers gives the outline and starts to bring pieces; the others join it. A
provider that lies is blamed and never asked again for this; one that stalls or breaks off is
replaced, and what it brought stays. One that does not have it (yet) is asked again a little later.
Whoever asked may be told at once of a provider that does not have it, or stalls a second time: of
the one that made it and offered it, that is enough to know.
"""

import asyncio
from collections.abc import Callable, Sequence

from iroh import IrohError, RecvStream

from folkmoot.core.content import NAME_BYTES, PIECE, piece_count
from folkmoot.exchange.peer import wire
from folkmoot.exchange.peer.describe_error import describe_error
from folkmoot.exchange.peer.link import Link, read_frame, time_for
from folkmoot.exchange.peer.pieces import Pieces, WrongContent
from folkmoot.exchange.peer.requests import request
from folkmoot.host.clock import backoff
from folkmoot.host.tasks import end_tasks

FIRST_RETRY, LAST_RETRY = 0.1, 2.0
DRIP = 4096
"""Bytes that must come in half of `stall`, or the provider is stalled now, not only slow."""
FEW, EVERYTHING = 4, 1 << 32
"""Pieces to ask for along with the outline: others wait for it, or there are none."""
OUTLINE_LIMIT = 64 << 20
ENOUGH_STALLS = 2
"""After so many a provider seems not to give it out, as one that says so at once."""


class FetchFailed(Exception):
    """The content could not be fetched; the message says what each provider did."""


class _Miss(Exception):
    """A provider that may do better later."""


class _NotHere(_Miss):
    """A provider that says it does not have it."""


class Download:
    """Some content on its way in."""

    def __init__(
        self,
        name: bytes,
        size_limit: int,
        stall: float,
        link: Callable[[bytes], Link | None],
        blame: Callable[[bytes, str], None],
        withheld: Callable[[bytes], None] = lambda peer: None,
    ) -> None:
        self.name = name
        self.pieces: Pieces | None = None
        self._size_limit, self._stall, self._link, self._blame = size_limit, stall, link, blame
        self._withheld, self._stalls = withheld, dict[bytes, int]()
        self._patience = 0.0
        self._clock = asyncio.Timeout(None)
        self._news = asyncio.Event()
        self._slow = 0  # how often the outline took long
        self._busy: dict[asyncio.Task[None], bytes] = {}
        self._said: dict[bytes, str] = {}

    async def run(self, providers: Sequence[bytes], width: int, seconds: float) -> bytes:
        """The content, from at most `width` providers at a time.

        With a `width` of 1 they are asked in the order given, else the fastest first. FetchFailed
        when no piece came for so many seconds.
        """
        self._patience = seconds
        try:
            async with asyncio.timeout(seconds) as self._clock:
                await self._bring_all(list(dict.fromkeys(providers)), width)
        except TimeoutError as error:
            raise FetchFailed(self._why(f"further within {seconds:g} s")) from error
        assert self.pieces is not None
        return bytes(self.pieces.data)

    async def _bring_all(self, ready: list[bytes], width: int) -> None:
        later: list[bytes] = []
        pauses = backoff(FIRST_RETRY, LAST_RETRY)
        try:
            while not self._complete():
                while ready and len(self._busy) < width and self._wants_one_more():
                    peer = ready[0] if width == 1 else min(ready, key=self._cost)
                    ready.remove(peer)
                    self._start(peer, alone=width == 1 or not ready)
                if self._busy:
                    await self._wait_for_news()
                    self._collect(ready, later)
                elif later:
                    await asyncio.sleep(next(pauses))
                    ready, later = later, []
                else:
                    raise FetchFailed(self._why("from anybody"))
        finally:
            await end_tasks(self._busy)

    def _wants_one_more(self) -> bool:
        """One is asked for the outline, and another each time that takes long."""
        if self.pieces is None:
            return len(self._busy) <= self._slow
        return self.pieces.waiting()

    def _start(self, peer: bytes, alone: bool) -> None:
        link = self._link(peer)
        task = asyncio.create_task(self._work(link, alone))
        self._busy[task] = peer
        task.add_done_callback(lambda _: self._news.set())
        if link:
            # Counted at once, so that downloads side by side choose different providers.
            link.busy += 1
            task.add_done_callback(lambda _: link.release())

    async def _wait_for_news(self) -> None:
        """Until a provider is done, or the outline is here."""
        try:
            async with asyncio.timeout(self._stall / 2 if self.pieces is None else None):
                await self._news.wait()
        except TimeoutError:
            self._slow += 1
        self._news.clear()

    def _collect(self, ready: list[bytes], later: list[bytes]) -> None:
        """A provider that is done is ready for more; one that missed is asked again later."""
        for task in [task for task in self._busy if task.done()]:
            peer = self._busy.pop(task)
            try:
                task.result()
                ready.append(peer)
            except (WrongContent, wire.Malformed) as error:
                self._said[peer] = f"it sent {error}"
                self._blame(peer, f"it sent {error}")
            except (_Miss, TimeoutError, IrohError) as error:
                self._said[peer] = describe_error(error)
                later.append(peer)
                self._note_miss(peer, error)

    def _note_miss(self, peer: bytes, error: Exception) -> None:
        stalls = self._stalls.get(peer, 0)
        if isinstance(error, _NotHere):
            self._stalls[peer] = ENOUGH_STALLS
        elif isinstance(error, TimeoutError):
            self._stalls[peer] = stalls + 1
        if stalls < ENOUGH_STALLS <= self._stalls.get(peer, 0):
            self._withheld(peer)

    def _complete(self) -> bool:
        return self.pieces is not None and not self.pieces.left

    def _cost(self, peer: bytes) -> tuple[float, float]:
        """Those not measured yet, then the faster, counting what they already do for us."""
        link = self._link(peer)
        if link is None:
            return float("inf"), 0.0
        return ((1 + link.busy) / link.rate if link.rate else 1e-12 * link.busy), link.rtt()

    def _why(self, how: str) -> str:
        told = "; ".join(f"{peer[:4].hex()}: {what}" for peer, what in self._said.items())
        told = told or "nobody answered"
        return f"Content {self.name[:4].hex()}… could not be fetched {how} ({told})."

    async def _work(self, link: Link | None, alone: bool) -> None:
        """Bring spans from one provider as long as some wait."""
        if link is None:
            raise _Miss("not connected")
        if self.pieces is None:
            first = EVERYTHING if alone else FEW
            await self._bring(link, wire.Get(self.name, 0, first, outline=True), None)
        assert self.pieces is not None
        while span := self.pieces.take(len(self._busy)):
            get = wire.Get(self.name, *span, outline=False)
            await self._bring(link, get, span)

    async def _bring(self, link: Link, get: wire.Get, span: tuple[int, int] | None) -> None:
        at, stop = span or (0, 0)
        loop = asyncio.get_running_loop()
        began, got = loop.time(), 0
        try:
            async with request(link, get) as stream:
                found = await self._found(stream.recv())
                if self.pieces is None:
                    self.pieces = Pieces(self.name, found.size, found.hashes, self._size_limit)
                    at, stop = self.pieces.claim(get.stop)
                    self._news.set()
                while at < stop:
                    piece = await self._read(link, stream.recv(), self.pieces.length(at))
                    self.pieces.put(at, piece)
                    at, got = at + 1, got + len(piece)
                    self._clock.reschedule(loop.time() + self._patience)
        finally:
            if self.pieces is not None:
                self.pieces.give_back(at, stop)
        _measure(link, got, loop.time() - began)

    async def _found(self, stream: RecvStream) -> wire.Found:
        limit = min(NAME_BYTES * piece_count(self._size_limit), OUTLINE_LIMIT) + 512
        body = await read_frame(stream, limit, self._stall, wait=self._stall)
        reply: wire.GetReply = wire.decode_get_reply(body)
        if isinstance(reply, wire.RefusedReply):
            raise _NotHere(reply.reason)
        return reply

    async def _read(self, link: Link, stream: RecvStream, size: int) -> bytes:
        """One piece. It may be slow, but bytes must keep coming."""
        if not size:
            return b""
        reading = asyncio.ensure_future(stream.read_exact(size))
        try:
            async with asyncio.timeout(time_for(size, self._stall)):
                before = -DRIP
                while True:
                    done, _ = await asyncio.wait([reading], timeout=self._stall / 2)
                    if done:
                        return reading.result()
                    received = link.traffic().received
                    if received - before < DRIP:
                        raise TimeoutError
                    before = received
        finally:
            reading.cancel()


def _measure(link: Link, got: int, seconds: float) -> None:
    """Remember how fast a provider was, newer spans counting more."""
    if got >= PIECE and seconds > 0:
        rate = got / seconds
        link.rate = rate if not link.rate else (link.rate + rate) / 2
