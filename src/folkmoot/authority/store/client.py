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
from folkmoot.authority.store.genesis import Genesis
from folkmoot.authority.store.kv import Store, StoreError, StoreGone
from folkmoot.authority.store.kv.open import open_store, parse_url
from folkmoot.authority.store.mail import Message, not_allowed
from folkmoot.authority.store.post import Post
from folkmoot.authority.store.record import Place, Step
from folkmoot.authority.store.traffic import CountedStore, Traffic
from folkmoot.authority.store.worker import Worker
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.view import view
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
        self._view: Coordinator | None = None  # what is shown
        self._viewed: tuple[Coordinator, Coordinator] | None = None  # the newest state, its view
        self._version = 0  # counts views
        self._gone: StoreGone | None = None
        self._problem: Exception | None = None
        self._news = asyncio.Event()  # a new one for every version
        self._expected: dict[int, asyncio.Future[m.Refused | None]] = {}
        # What was said and is not recorded yet: its slot and the answer that will come.
        self._unanswered: dict[bytes, tuple[int, asyncio.Future[m.Refused | None]]] = {}
        self._closed = False

    def _open_store(self) -> Store:
        return CountedStore(open_store(self.url, self.run_id), self._traffic)

    # What clients use.

    async def watch(self) -> AsyncIterator[Coordinator]:
        self._start()
        seen = 0
        while True:
            while self._version == seen:
                self._raise_problem()
                await self._news.wait()
            seen = self._version
            assert self._view is not None
            yield self._view

    async def submit(self, message: m.AnyEvent) -> m.Refused | None:
        self._start()
        assert not isinstance(message, m.Tick), "ticks are made by those who keep a run"
        try:
            async with asyncio.timeout(SUBMIT_TIMEOUT):
                genesis = await self._begun()
                if wrong := not_allowed(genesis, self._identity.public, message):
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
    def trouble(self) -> str:
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
            self._raise_problem()
            if self._gone is not None:
                raise self._gone
            await self._news.wait()
        self._raise_problem()
        return self._genesis

    async def _deliver(self, message: Message) -> m.Refused | None:
        loop = asyncio.get_running_loop()
        said = msgspec.msgpack.encode(message)
        for _ in range(TRIES):
            # One who says it again, because it takes long, waits for the letter that is there.
            if said not in self._unanswered:
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
            before = self._expected.get(slot)
            self._expected[slot] = self._loop.create_future()
            claimed.append(slot)
            if before is not None:
                self._call(_lose, before)  # a store that is empty hands its slots out again

        slot, data = self._poster_post().send(message, self._worker.mailbox, expect)
        for other in claimed[:-1]:
            self._expected.pop(other)
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
            if slot < place.mailbox.next and slot not in place.mailbox.holes and not answer.done():
                answer.set_exception(StoreGone("we slept while the message was taken or passed"))
        self._show(place)
        self._tell()

    def _on_moved(self, step: Step) -> None:
        self._gone = None
        # Before it is shown: one who leaves hears so before it sees that it is gone, and returns.
        for slot, refused in step.answers.items():
            answer = self._expected.get(slot)
            if answer is not None and not answer.done():
                answer.set_result(refused)
        for slot in step.place.record.given_up:
            answer = self._expected.get(slot)
            if answer is not None and not answer.done():
                answer.set_exception(_GivenUp())
        if self._listen is not None:
            for effect in step.effects:
                self._listen(effect, step.place.time)
        self._show(step.place)

    def _on_lost(self, error: StoreGone) -> None:
        self._gone = error
        self._tell()

    def _on_ended(self, error: Exception) -> None:
        self._problem = error
        for answer in list(self._expected.values()):
            if not answer.done():
                answer.set_exception(error)
        self._tell()

    def _show(self, place: Place) -> None:
        shown = view(place.state, self._viewed)
        self.place, self._viewed = place, (place.state, shown)
        # Where lines of records parted, ours may have been ahead: nobody is shown a step back.
        if self._view is not None and _stage(shown) < _stage(self._view):
            return
        if shown != self._view:
            self._view, self._version = shown, self._version + 1
            self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _start(self) -> None:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._worker.start()

    def _raise_problem(self) -> None:
        if self._problem is not None:
            raise Denied(f"{self.url}: {self._problem}")


def _lose(answer: "asyncio.Future[m.Refused | None]") -> None:
    if not answer.done():
        answer.set_exception(StoreGone("the store has lost the message"))


_STAGES = {Phase.Warmup: 1, Phase.RoundTrain: 2, Phase.RoundWitness: 2, Phase.Cooldown: 3}


def _stage(state: Coordinator) -> tuple[int, int, int, bool]:
    """How far a run is, in an order that it goes through in one direction."""
    height = state.round.height if state.epoch.rounds else -1
    stage = _STAGES.get(state.phase, 0)
    return state.epoch_number, stage, height, state.phase is Phase.RoundWitness
