"""The authority of a run in a store, as its clients use it: nobody serves, everybody checks.

A message becomes a signed letter in the run's mailbox. Whose turn it is takes the letters into a
record; all others compute what follows from it themselves, the sender among them, so that is also
how it learns whether its message was refused.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.shown import Shown
from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.kv import Store, StoreError, StoreGone
from folkmoot.authority.store.kv.open import open_store, parse_url
from folkmoot.authority.store.mail import Message
from folkmoot.authority.store.post import Post
from folkmoot.authority.store.record import Place, Step
from folkmoot.authority.store.traffic import Traffic, counted
from folkmoot.authority.store.worker import Worker
from folkmoot.core.coordinator import Coordinator
from folkmoot.core.coordinator import messages as m
from folkmoot.host.signing import Identity

Listener = Callable[[m.Effect, int], None]

SUBMIT_TIMEOUT = 10.0
# How often a letter is written again whose slot was given up before it was there.
TRIES = 3


class _GivenUp(Exception):
    """The slot was passed over: the letter was not there in time, or not seen."""


class StoreAuthority:
    """One client's part in the run `run_id` that is in the store at `url`.

    `listen` is called with every effect of the run and its time, in the event loop.
    """

    def __init__(
        self, url: str, run_id: str, identity: Identity, listen: Listener | None = None
    ) -> None:
        parse_url(url)  # a url that is none is an error now, not later
        self.url, self.run_id, self._identity = url, run_id, identity
        self._listen = listen
        self._traffic = Traffic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker = Worker(self._open_store, run_id, identity, self)
        self._poster = ThreadPoolExecutor(1, "run mail")
        self._post: Post | None = None
        self._post_store: Store | None = None
        self._genesis: Genesis | None = None
        self.place: Place | None = None
        """The newest record and the run's state after it."""
        self._shown = Shown(url)
        self._gone: StoreGone | None = None
        self._expected: dict[int, asyncio.Future[m.Refused | None]] = {}
        # What was said and is not recorded yet: its slot and the answer that will come.
        self._unanswered: dict[bytes, tuple[int, asyncio.Future[m.Refused | None]]] = {}
        self._closed = False

    def _open_store(self) -> Store:
        return counted(open_store(self.url, self.run_id), self._traffic)

    # What clients use.

    def watch(self) -> AsyncIterator[Coordinator]:
        self._start()
        return self._shown.watch()

    async def submit(self, message: m.AnyEvent) -> m.Refused | None:
        self._start()
        assert not isinstance(message, m.Tick), "ticks are made by those who keep a run"
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT):
                genesis = await self._begun()
                if wrong := genesis.access.not_allowed(self._identity.public, message):
                    raise Denied(f"{self.url}: {wrong}")
                return await self._deliver(message)
        except StoreGone as error:
            raise Unreachable(str(error)) from None
        except StoreError as error:
            raise Denied(f"{self.url}: {error}") from None
        except TimeoutError:
            why = str(self._gone) if self._gone else "nobody took the message into the run's log"
            raise Unreachable(f"{self.url}: {why}") from None

    @property
    def last_error(self) -> str:
        return str(self._gone) if self._gone else ""

    def traffic(self) -> tuple[int, int]:
        return self._traffic.sent, self._traffic.received

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._worker.close)
        await asyncio.to_thread(self._poster.shutdown)
        if self._post_store is not None:
            self._post_store.close()

    # Sending.

    async def _begun(self) -> Genesis:
        """The genesis, once the worker has begun."""
        while self._genesis is None:
            self._shown.check()
            if self._gone is not None:
                raise self._gone
            await self._shown.wait()
        self._shown.check()
        return self._genesis

    async def _deliver(self, message: Message) -> m.Refused | None:
        loop = asyncio.get_running_loop()
        said = msgspec.msgpack.encode(message)
        for _ in range(TRIES):
            # One who says it again, because it takes long, waits for the letter that is there. One
            # who was answered may be here before `_answered` was called.
            if said not in self._unanswered or self._unanswered[said][1].done():
                slot, answer = await loop.run_in_executor(self._poster, self._send, message)
                self._unanswered[said] = slot, answer
                answer.add_done_callback(partial(self._answered, said, slot))
            slot, answer = self._unanswered[said]
            try:
                return await asyncio.shield(answer)
            except _GivenUp:
                await loop.run_in_executor(self._poster, self._poster_post().withdraw, slot)
        raise StoreGone("the message was passed over again and again: is the store very slow?")

    def _answered(self, said: bytes, slot: int, answer: asyncio.Future[m.Refused | None]) -> None:
        if self._unanswered.get(said) == (slot, answer):
            del self._unanswered[said]
        if self._expected.get(slot) is answer:
            del self._expected[slot]
        if not answer.cancelled():
            answer.exception()  # perhaps nobody waits for it any more

    def _send(self, message: Message) -> tuple[int, "asyncio.Future[m.Refused | None]"]:
        """In the thread of the poster."""
        claimed: list[int] = []

        def expect(slot: int) -> None:
            assert self._loop is not None
            if slot in claimed:
                return
            before = self._expected.get(slot)
            self._expected[slot] = self._loop.create_future()
            claimed.append(slot)
            if before is not None:
                # A store that is empty hands its slots out again.
                self._call(_fail, before, StoreGone("the store has lost the message"))

        post, near = self._poster_post(), self._worker.next_slot()
        slot, data = post.send(message, self._worker.mailbox, expect, near)
        for other in claimed:
            if other != slot:
                self._call(_forget, self._expected.pop(other))
        self._worker.posted(slot, data)
        return slot, self._expected[slot]

    def _poster_post(self) -> Post:
        if self._post is None:
            assert self._genesis is not None
            self._post_store = self._open_store()
            self._post = Post(self._post_store, self._genesis, self._identity)
        return self._post

    # What the worker's thread tells.

    def began(self, genesis: Genesis, place: Place) -> None:
        self._call(self._on_began, genesis, place)

    def moved(self, step: Step) -> None:
        self._call(self._on_moved, step)

    def lost(self, error: StoreGone) -> None:
        self._call(self._on_lost, error)

    def ended(self, error: Exception | None) -> None:
        if error is not None:
            self._call(self._on_ended, error)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        assert self._loop is not None
        if not self._closed:
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_began(self, genesis: Genesis, place: Place) -> None:
        self._genesis, self._gone = genesis, None
        for slot, answer in list(self._expected.items()):
            if slot < place.mailbox.next and slot not in place.mailbox.holes:
                _fail(answer, StoreGone("we slept while the message was taken or passed"))
        self._show(place)
        self._shown.tell()

    def _on_moved(self, step: Step) -> None:
        self._gone = None
        # Before it is shown: one who leaves hears so before it sees that it is gone, and returns.
        for slot, refused in step.answers.items():
            answer = self._expected.get(slot)
            if answer is not None and not answer.done():
                answer.set_result(refused)
        for slot in step.place.record.given_up:
            _fail(self._expected.get(slot), _GivenUp())
        if self._listen is not None:
            for effect in step.effects:
                self._listen(effect, step.place.time)
        self._show(step.place)

    def _on_lost(self, error: StoreGone) -> None:
        self._gone = error
        self._shown.tell()

    def _on_ended(self, error: Exception) -> None:
        self._shown.problem = error
        for answer in list(self._expected.values()):
            _fail(answer, error)
        self._shown.tell()

    def _show(self, place: Place) -> None:
        self.place = place
        self._shown.show(place.state)

    def _start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._worker.start()


def _forget(answer: "asyncio.Future[m.Refused | None]") -> None:
    """Nobody waits for it: it is not even told of as lost."""
    if not answer.cancel():
        answer.exception()


def _fail(answer: "asyncio.Future[m.Refused | None] | None", error: Exception) -> None:
    if answer is not None and not answer.done():
        answer.set_exception(error)
