"""What a client knows about the results of one round: who has work, what was offered, what came.

Two questions are answered here, equally on every client that knows the same results: what a
witness attests, and which results are learnt once the witnesses have spoken.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from folkmoot.core import bloom
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.client.screening import ComparedResult
from folkmoot.core.coordinator.commitment import (
    count_votes,
    select_consensus_commitment_by_witnesses,
)
from folkmoot.core.coordinator.health import participant_item, trainer_healthy_score_by_witnesses
from folkmoot.core.coordinator.state import Coordinator, Round
from folkmoot.core.merkle import merkle_root

# An honest trainer commits once a round. More are kept only to see which one the witnesses saw.
COMMITMENTS_KEPT = 4


Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
Number = Annotated[int, Meta(ge=0, lt=2**40)]


class Result(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A trainer tells its peers what it trained: the commitment, and the bytes' content address."""

    epoch: Number
    height: Number
    sender: Hash
    commitment: Hash
    blob: Hash
    size: Number


class Attested(msgspec.Struct, frozen=True):
    """The commitments that the witnesses of a round saw: one filter from each of them.

    One in a hundred that nobody saw is in a filter; of a quorum's, each with a key of its own, next
    to none. So whoever makes up results finds none that would be taken for an attested one.
    """

    filters: tuple[tuple[bytes, bloom.Shape], ...]
    quorum: int

    def __contains__(self, commitment: bytes) -> bool:
        return count_votes([commitment], self.filters)[commitment] >= self.quorum


def attested(state: Coordinator, by: Round) -> Attested:
    shapes = ((w.broadcast_bloom, state.bloom_shape(by, w.proof.index)) for w in by.witnesses)
    return Attested(tuple(shapes), state.quorum(by))


class RoundVerdict(NamedTuple):
    """What a round taught: the results to learn in order, and whose are still to be found.

    Of the `missing` we know which bytes to get; of the `unheard` only that witnesses saw something.
    """

    learn: tuple[Result, ...] = ()
    missing: tuple[bytes, ...] = ()
    unheard: tuple[bytes, ...] = ()


def attest(first: Mapping[bytes, bytes], shape: bloom.Shape) -> tuple[bytes, bytes, bytes]:
    """A witness's filters of senders and of their commitments, and the root of the latter."""
    commitments = sorted(first.values())
    participants = bloom.fill([participant_item(sender) for sender in first], shape)
    return participants, bloom.fill(commitments, shape), merkle_root(commitments)


class Ledger:
    """The results of one round, as one client sees them."""

    def __init__(self, state: Coordinator, work: Round) -> None:
        self.height = work.height
        self.step = work.step
        clients = state.epoch.clients
        #: Who has work, in the order of places: the order in which results are learnt.
        self.shares: dict[bytes, Share] = {
            clients[state.place(work, index)].id: share
            for index, share in sorted(state.assignment(work).shares())
        }
        self.offers: dict[bytes, dict[bytes, Result]] = {}
        #: The commitment that each sender told of first, with its signature.
        self.told: dict[bytes, bytes] = {}
        #: The first commitment of each sender whose bytes arrived whole and sound.
        self.first: dict[bytes, bytes] = {}
        #: Whose result each commitment is that arrived so. It binds the samples, so it is one
        #: sender's only: whoever else names it has copied it.
        self.sound: dict[bytes, bytes] = {}
        #: Who does not give out what it told of, or gave something else: nobody waits for it.
        self.unavailable: set[bytes] = set()
        #: By commitment, what stands for the direction of a result that arrived.
        self.sketches: dict[bytes, bytes] = {}

    def contradicts(self, result: Result) -> bool:
        """Whether its sender told of another result for the same share."""
        told = self.told.setdefault(result.sender, result.commitment)
        return told != result.commitment

    def offer(self, result: Result) -> bool:
        """Note a result; False when it is not one that this round awaits."""
        offers = self.offers.setdefault(result.sender, {})
        if result.sender not in self.shares or result.commitment in offers:
            return False
        if len(offers) >= COMMITMENTS_KEPT:
            return False
        offers[result.commitment] = result
        return True

    def arrived(self, result: Result, sketch: bytes = b"") -> None:
        """The bytes of a result are here, and are what was committed to."""
        self.sketches[result.commitment] = sketch
        self.offers.setdefault(result.sender, {})[result.commitment] = result
        self.sound[result.commitment] = result.sender
        self.first.setdefault(result.sender, result.commitment)

    def cannot_be_had(self, result: Result) -> None:
        """Its sender may tell of no other, so that nothing is to be waited for."""
        if self.told.get(result.sender) == result.commitment:
            self.unavailable.add(result.sender)

    def own(self, sender: bytes) -> dict[bytes, Result]:
        """What a sender offered, without what it copied from others."""
        offers = self.offers.get(sender, {})
        return {c: offer for c, offer in offers.items() if self.sound.get(c, sender) == sender}

    def arrivals(self) -> list[ComparedResult]:
        """The first sound result of each sender, in the order in which they came."""
        return [
            ComparedResult(sender, self.offers[sender][name].blob, self.sketches.get(name, b""))
            for sender, name in self.first.items()
        ]

    @property
    def complete(self) -> bool:
        """Whether a result of every share has arrived."""
        return len(self.first) == len(self.shares)

    def verdict(self, state: Coordinator, by: Round) -> RoundVerdict:
        """What the witnesses of `by` decided about this round."""
        quorum = state.quorum(by)
        if not self.shares or len(by.witnesses) < quorum:
            return RoundVerdict()
        void = {state.epoch.clients[place].id for place in by.void}
        senders = [sender for sender in self.shares if sender not in void]
        scores = trainer_healthy_score_by_witnesses(senders, state, by)
        known = [commitment for offers in self.offers.values() for commitment in offers]
        votes = count_votes(known, attested(state, by).filters)
        learn, missing, unheard = [], [], []
        for sender, score in zip(senders, scores.tolist(), strict=True):
            if score < quorum:
                continue
            offers = self.own(sender)
            chosen = select_consensus_commitment_by_witnesses(offers, votes, quorum)
            if chosen is not None and chosen in self.sound:
                learn.append(offers[chosen])
            elif chosen is not None:
                missing.append(sender)
            elif sum(votes[commitment] for commitment in offers) < score:
                # Else there is no other commitment: it told different witnesses different things,
                # and nobody learns from it.
                unheard.append(sender)
        return RoundVerdict(tuple(learn), tuple(missing), tuple(unheard))
