"""Fetch content from whoever has it: from several at once, the fastest first, resumed anywhere.

The first provider that answers gives the outline and starts to bring pieces; the others join it. A
provider that lies is blamed and never asked again for this; one that stalls or breaks off is
replaced, and what it brought stays. One that does not have it (yet) is asked again a little later.
"""

import asyncio
from collections.abc import Callable, Sequence

from iroh import IrohError, RecvStream

from folkmoot.core.content import NAME_BYTES, PIECE, piece_count
from folkmoot.exchange.peer import wire
from folkmoot.exchange.peer.link import Link, read_frame
from folkmoot.exchange.peer.pieces import Lie, Pieces
from folkmoot.exchange.peer.requests import request
from folkmoot.exchange.peer.trouble import in_words

FIRST_RETRY, LAST_RETRY = 0.1, 2.0
SLOWEST = 20_000
"""Bytes a second: whoever is slower than this is as good as stalled."""
DRIP = 4096
"""Bytes that must come in half of `stall`, or the provider is stalled now, not only slow."""
FEW, EVERYTHING = 4, 1 << 32
"""Pieces to ask for along with the outline: others wait for it, or there are none."""
OUTLINE_LIMIT = 64 << 20


class Unavailable(Exception):
    """The content could not be fetched; the message says what each provider did."""


class _Miss(Exception):
    """A provider that may do better later."""


class Download:
    """Some content on its way in."""

    def __init__(
        self,
        name: bytes,
        size_limit: int,
        stall: float,
        link: Callable[[bytes], Link | None],
        blame: Callable[[bytes, str], None],
    ) -> None:
        self.name = name
        self.pieces: Pieces | None = None
        self._size_limit, self._stall, self._link, self._blame = size_limit, stall, link, blame
        self._outlining = asyncio.Lock()
        self._busy: dict[asyncio.Task[bool], bytes] = {}
        self._said: dict[bytes, str] = {}

    async def run(self, providers: Sequence[bytes], width: int, seconds: float) -> bytes:
        """The content, from at most `width` providers at a time; Unavailable when time is up."""
        try:
            async with asyncio.timeout(seconds):
                await self._bring_all(list(dict.fromkeys(providers)), width)
        except TimeoutError as error:
            raise Unavailable(self._why(f"within {seconds:g} s")) from error
        assert self.pieces is not None
        return bytes(self.pieces.data)

    async def _bring_all(self, ready: list[bytes], width: int) -> None:
        later: list[bytes] = []
        pause = FIRST_RETRY
        try:
            while not self._complete():
                while ready and len(self._busy) < width and self._work_waits():
                    peer = min(ready, key=self._cost)
                    ready.remove(peer)
                    task = asyncio.create_task(self._work(peer, alone=width == 1 or not ready))
                    self._busy[task] = peer
                if self._busy:
                    await self._collect(ready, later)
                elif later:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, LAST_RETRY)
                    ready, later = later, []
                else:
                    raise Unavailable(self._why("from anybody"))
        finally:
            await self._stop()

    async def _collect(self, ready: list[bytes], later: list[bytes]) -> None:
        """Wait for a provider to end: with success it is ready for more, after a miss later."""
        done, _ = await asyncio.wait(self._busy, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            peer = self._busy.pop(task)
            try:
                task.result()
                ready.append(peer)
            except (Lie, wire.Malformed) as error:
                self._said[peer] = f"it sent {error}"
                self._blame(peer, f"it sent {error}")
            except (_Miss, TimeoutError, IrohError) as error:
                self._said[peer] = in_words(error)
                later.append(peer)

    async def _stop(self) -> None:
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    def _complete(self) -> bool:
        return self.pieces is not None and not self.pieces.left

    def _work_waits(self) -> bool:
        return self.pieces is None or self.pieces.waiting()

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

    async def _work(self, peer: bytes, alone: bool) -> bool:
        """Bring spans from one provider as long as some wait."""
        link = self._link(peer)
        if link is None:
            raise _Miss("not connected")
        if self.pieces is None:
            async with self._outlining:
                if self.pieces is None:
                    await self._begin(link, EVERYTHING if alone else FEW)
        assert self.pieces is not None
        while span := self.pieces.take(len(self._busy)):
            get = wire.Get(self.name, *span, outline=False)
            await self._bring(link, get, span)
        return True

    async def _begin(self, link: Link, stop: int) -> None:
        """Ask for the outline and the first pieces in one go."""
        await self._bring(link, wire.Get(self.name, 0, stop, outline=True), None)

    async def _bring(self, link: Link, get: wire.Get, span: tuple[int, int] | None) -> None:
        at, stop = span or (0, 0)
        began, got = asyncio.get_running_loop().time(), 0
        try:
            async with request(link, get) as stream:
                found = await self._found(stream.recv())
                if self.pieces is None:
                    self.pieces = Pieces(self.name, found.size, found.hashes, self._size_limit)
                    at, stop = self.pieces.claim(get.stop)
                while at < stop:
                    piece = await self._read(link, stream.recv(), self.pieces.length(at))
                    self.pieces.put(at, piece)
                    at, got = at + 1, got + len(piece)
        finally:
            if self.pieces is not None:
                self.pieces.give_back(at, stop)
        _measure(link, got, asyncio.get_running_loop().time() - began)

    async def _found(self, stream: RecvStream) -> wire.Found:
        limit = min(NAME_BYTES * piece_count(self._size_limit), OUTLINE_LIMIT) + 512
        async with asyncio.timeout(self._stall + limit / SLOWEST):
            reply = wire.decode_get_reply(await read_frame(stream, limit, None))
        if isinstance(reply, wire.Refused):
            raise _Miss(reply.reason)
        assert isinstance(reply, wire.Found)
        return reply

    async def _read(self, link: Link, stream: RecvStream, size: int) -> bytes:
        """One piece. It may be slow, but bytes must keep coming."""
        if not size:
            return b""
        reading = asyncio.ensure_future(stream.read_exact(size))
        try:
            async with asyncio.timeout(self._stall + size / SLOWEST):
                before = -DRIP
                while True:
                    done, _ = await asyncio.wait([reading], timeout=self._stall / 2)
                    received = link.traffic().received if not done else 0
                    if done:
                        return reading.result()
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
