"""The results of the last rounds: told to peers, fetched from them, and believed only when checked.

A result is a few numbers that its sender signed (`Result`) and the bytes that they name. It counts
once its bytes are what its sender committed to, for the samples that were its own, and can be
learnt. Whatever else a peer sends is refused, noted, and as if it had not come; the same holds for
what its sender does not give out, and nobody waits for either. A result that came
too late or not at all is asked for; then only what a quorum saw is fetched, since those who answer
did not sign it.
"""

import random
from collections.abc import Callable, Iterable
from functools import partial

import msgspec
from blake3 import blake3

from folkmoot.client import events
from folkmoot.client.learner import Learner
from folkmoot.core.content import content_name
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import COMMITMENTS_KEPT, Result
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.identity import short
from folkmoot.core.unreadable import UNREADABLE
from folkmoot.exchange.peer import (
    CallRefused,
    FetchFailed,
    GossipMessage,
    NoAnswer,
    Peer,
    StoreFull,
)
from folkmoot.exchange.peer.rpc import RpcMethod
from folkmoot.host.event_log import Record

# Gossip and blobs are kept by a number that grows from round to round through all epochs.
EPOCH_ROUNDS = 1 << 20
# Senders that one question may name.
SENDERS_ASKED = 4096


class Wanted(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Which results a client that missed them asks for."""

    epoch: int
    height: int
    senders: tuple[bytes, ...]


# How long an answer of a peer that is there may take, in seconds: the network repeats the question.
PROBE_TIME = 10.0
IS_THERE = RpcMethod("is there", bool, bool)
GET_RESULTS = RpcMethod("results", Wanted, tuple[Result, ...])


def number(epoch: int, height: int) -> int:
    """What peers keep a round's messages and bytes under."""
    return epoch * EPOCH_ROUNDS + height


def _round(result: Result) -> int:
    return number(result.epoch, result.height)


class Results:
    """What one client has of the rounds that the state still tells of."""

    def __init__(
        self,
        peer: Peer,
        learner: Learner,
        tell: Callable[[c.Event], None],
        emit: Callable[[Record], None],
    ) -> None:
        self.peer, self.learner = peer, learner
        self._tell_machine, self._emit = tell, emit
        #: The results whose bytes are here, by round and commitment.
        self._held: dict[int, dict[bytes, tuple[Result, bytes]]] = {}
        self._messages: dict[tuple[bytes, bytes], GossipMessage] = {}  # by sender and commitment
        self._asking: set[int] = set()
        self._probing: set[bytes] = set()
        self._oldest = 0  # the first round that is still of interest
        peer.answer(GET_RESULTS, self._answer)
        peer.answer(IS_THERE, _is_there)

    # Our own.

    def made(self, action: c.Train, payload: bytes) -> Result:
        """Keep what we trained; what to tell about it."""
        commitment = commitment_hash(action.step, action.share, payload)
        name = content_name(payload, blake3)
        where = (action.epoch, action.height)
        result = Result(*where, self.peer.id, commitment, name, len(payload))
        self._hold(result, payload)
        return result

    def tell(self, result: Result) -> int:
        """Publish it; the bytes that this must cost at least."""
        (payload,) = self.payloads([result])
        self.peer.publish(_round(result), msgspec.msgpack.encode(result), payload)
        return len(payload) * len(self.peer.neighbours())

    # Others'.

    async def listen(self) -> None:
        """Take in what peers publish, until cancelled."""
        while True:
            message = await self.peer.receive()
            try:
                result = msgspec.msgpack.decode(message.head, type=Result)
            except UNREADABLE as error:
                self._refuse(message.origin, -1, f"it is not a result: {str(error)[:200]}")
                continue
            if reason := self._contradiction(message, result):
                self._refuse(message.origin, result.height, reason)
                continue
            self._messages[result.sender, result.commitment] = message
            self._tell_machine(c.Offered(result))

    def _contradiction(self, message: GossipMessage, result: Result) -> str | None:
        """What a message says wrongly about itself: later, others could not find its bytes."""
        content = message.content
        if result.sender != message.origin:
            return "it speaks for another client"
        if _round(result) != message.round:
            return "it was sent as of another round"
        if result.size > (limit := self.learner.method.payload_size):
            return f"it has {result.size:,} bytes; no result has more than {limit:,}"
        if content.blob:
            named = (content.blob.name, content.blob.size)
        else:
            named = (content_name(content.body, blake3), len(content.body))
        if named != (result.blob, result.size):
            return "it names other bytes than it carries"
        return None

    async def fetch(self, action: c.Fetch) -> None:
        """Get the bytes of a result that was offered."""
        result = action.result
        message = self._messages.pop((result.sender, result.commitment), None)
        try:
            if message is not None:
                withheld = partial(self._give_up, result, "its sender does not give it out")
                payload = await self.peer.body(message, result.size, withheld=withheld)
            else:
                payload = await self._get(result)
        except FetchFailed as error:
            self._give_up(result, str(error))
            return
        if not self._take(result, payload, action.step, action.share):
            self._tell_machine(c.Unavailable(result))

    def _give_up(self, result: Result, reason: str) -> None:
        """Wait for it no longer; if it comes after all, it counts."""
        self._refuse(result.sender, result.height, reason)
        self._tell_machine(c.Unavailable(result))

    async def _get(self, result: Result) -> bytes:
        providers = [result.sender, *sorted(self.peer.neighbours() - {result.sender})]
        return await self.peer.get(result.blob, providers, result.size, _round(result))

    def _take(self, result: Result, payload: bytes, step: int, share: Share) -> bool:
        """Believe a result when its bytes are what its sender committed to, and can be learnt."""
        if _round(result) < self._oldest:
            return False
        reason = None
        if commitment_hash(step, share, payload) != result.commitment:
            reason = "its bytes are not what was committed to"
        elif refusal := self.learner.method.check(payload):
            reason = f"{refusal.reason}: {refusal.detail}"
        if reason is not None:
            self._refuse(result.sender, result.height, reason)
            return False
        self._hold(result, payload)
        self._tell_machine(c.Arrived(result, self.learner.method.sketch(payload)))
        return True

    def _refuse(self, sender: bytes, height: int, reason: str) -> None:
        self._emit(events.ResultRefused(short(sender), height, reason))

    def _hold(self, result: Result, payload: bytes) -> None:
        """Keep it, and let peers fetch it here if there is room: others may have it too."""
        self._held.setdefault(_round(result), {})[result.commitment] = (result, payload)
        try:
            self.peer.put(payload, _round(result))
        except StoreFull as error:
            self._emit(events.Peers("store full", str(error)))

    # What we missed.

    async def ask(self, action: c.Ask) -> None:
        """Ask neighbours, one after the other, until every result is here."""
        if action.height in self._asking:
            return  # the neighbours that were asked have their time
        self._asking.add(action.height)
        try:
            self._emit(events.ResultMissing(action.epoch, action.height, len(action.shares)))
            wanted = set(action.shares)
            for neighbour in sorted(self.peer.neighbours(), key=lambda _: random.random()):
                if wanted:
                    await self._ask(neighbour, action, wanted)
        finally:
            self._asking.discard(action.height)

    async def _ask(self, neighbour: bytes, action: c.Ask, wanted: set[bytes]) -> None:
        question = Wanted(action.epoch, action.height, tuple(wanted)[:SENDERS_ASKED])
        try:
            answer = await self.peer.ask(neighbour, GET_RESULTS, question)
            for result in answer[: len(wanted) * COMMITMENTS_KEPT]:
                if result.sender in wanted and self._asked_for(result, action):
                    payload = await self._get(result)
                    if self._take(result, payload, action.step, action.shares[result.sender]):
                        wanted.discard(result.sender)
        except (NoAnswer, CallRefused, FetchFailed) as error:
            self._emit(events.Peers("no answer", f"{short(neighbour)}: {error}"))

    def _asked_for(self, result: Result, action: c.Ask) -> bool:
        return (
            (result.epoch, result.height) == (action.epoch, action.height)
            and result.size <= self.learner.method.payload_size
            and result.commitment in action.attested
        )

    async def _answer(self, asker: bytes, wanted: Wanted) -> tuple[Result, ...]:
        senders = set(wanted.senders[:SENDERS_ASKED])
        held = self._held.get(number(wanted.epoch, wanted.height), {})
        return tuple(result for result, _ in held.values() if result.sender in senders)

    async def probe(self, neighbour: bytes) -> None:
        """Ask a peer whether it is there."""
        if neighbour in self._probing:
            return
        self._probing.add(neighbour)
        try:
            await self.peer.ask(neighbour, IS_THERE, True, PROBE_TIME)
            self._tell_machine(c.Heard(neighbour))
        except (NoAnswer, CallRefused):
            pass
        finally:
            self._probing.discard(neighbour)

    # Keeping and forgetting.

    def payloads(self, results: Iterable[Result]) -> list[bytes]:
        return [self._held[_round(result)][result.commitment][1] for result in results]

    def forget(self, action: c.Forget) -> None:
        """Drop the rounds that the state no longer tells of."""
        before = self._oldest = number(action.epoch, action.height)
        self.peer.expire(before)
        self._held = {round_: held for round_, held in self._held.items() if round_ >= before}
        self._messages = {k: kept for k, kept in self._messages.items() if kept.round >= before}

    def clear(self) -> None:
        """The epoch is over for us."""
        self._held.clear()
        self._messages.clear()


async def _is_there(asker: bytes, question: bool) -> bool:
    return True
