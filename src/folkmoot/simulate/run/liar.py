"""Clients that lie. Each has a few lies of its own, and the liars of a world work together.

As witnesses they lie only in rounds where fewer of them are elected than make a quorum: more could
agree on anything, which no rule of the machine can help. Every other lie is told without restraint.
"""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

from msgspec.structs import replace

from folkmoot.core import bloom
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.coordinator.health import participant_item
from folkmoot.core.coordinator.state import Coordinator, Round
from folkmoot.simulate.run import reference
from folkmoot.simulate.run.audit import ModelStored, ToyModel
from folkmoot.simulate.run.toy_client import ToyClient

WITNESS_LIES = (
    "claims everyone worked",
    "claims nobody worked",
    "names a wrong model",
    "sends a full filter",
    "speaks for another index",
    "speaks of another round",
    "proves twice",
    "claims to be elected",
)
OTHER_LIES = (
    "equivocates",
    "trains nothing",
    "claims to hold the model",
    "hands out a wrong model",
    "accuses the healthy",
    "is ready without the model",
    "reports a checkpoint that is not there",
    "spoofs senders",
    "claims to be fast",
)
WRONG_MODEL = sha256(b"a model that the liars made up").digest()


class LyingClient(ToyClient):
    honest = False
    retired = False  # when a world's faults stop, its liars become honest

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        random: Random = self.loop.random
        self.lies = {
            *random.sample(WITNESS_LIES, random.randint(1, 4)),
            *random.sample(OTHER_LIES, random.randint(2, 5)),
        }

    def reform(self) -> None:
        self.retired = True

    def lie(self, name: str) -> bool:
        return name in self.lies and not self.retired and self.loop.chance(0.7)

    def may_lie(self, view: Coordinator, round_: Round) -> bool:
        """Whether fewer liars than a quorum are among the elected."""
        places = self.audit.committees.witnesses(view, round_)
        ids = [view.epoch.clients[place].id for place in places]
        liars = sum(isinstance(self.peers.get(i), LyingClient) for i in ids)
        return liars < reference.quorum(len(places))

    # As a witness.

    def _witness(self, view: Coordinator, place: int, again: bool) -> None:
        super()._witness(view, place, again)
        index = view.index(view.round, place)
        if index is None or not self.synced(view) or not self.lie("claims to be elected"):
            return
        proof = self.audit.committees.proof(view, view.round, index)
        if not proof.witness:
            forged = replace(proof, witness=True, position=self.loop.random.choice((0, 99)))
            truth = super().testimony(view, view.round, index)
            self.submit(replace(truth, proof=forged))

    def testimony(self, view: Coordinator, current: Round, index: int) -> m.OpportunisticWitness:
        truth = super().testimony(view, current, index)
        if self.retired or not self.may_lie(view, current):
            return truth
        ids = [client.id for client in view.epoch.clients]
        shape = view.bloom_shape(current, index)
        if self.lie("sends a full filter"):
            ones = b"\xff" * (shape.bits // 8)
            self.submit(replace(truth, participant_bloom=ones, broadcast_bloom=ones))
        if self.lie("speaks for another index"):
            other = self.loop.random.randrange(view.roster_size(current))
            proof = self.audit.committees.proof(view, current, other)
            self.submit(replace(truth, proof=replace(proof, witness=True)))
        if self.lie("speaks of another round"):
            self.submit(replace(truth, height=current.height + self.loop.random.choice((-1, 1))))
        if self.lie("claims everyone worked"):
            items = [participant_item(identity) for identity in ids]
            truth = replace(truth, participant_bloom=bloom.fill(items, shape))
        if self.lie("claims nobody worked"):
            nothing = bytes(shape.bits // 8)
            truth = replace(truth, participant_bloom=nothing, broadcast_bloom=nothing)
        if self.lie("names a wrong model"):
            truth = replace(truth, model_hash=WRONG_MODEL)
        if self.lie("proves twice"):
            self.submit(truth)
            self.submit(replace(truth, model_hash=WRONG_MODEL))
        return truth

    # As a trainer.

    def publish(self, key: tuple[int, int], step: int, share: Share, roster: list[bytes]) -> None:
        if self.lie("trains nothing"):
            return
        if not self.lie("equivocates"):
            super().publish(key, step, share, roster)
            return
        half = self.loop.random.sample(roster, len(roster) // 2)
        self.gossip(key, commitment_hash(step, share, self.id), half)
        self.gossip(key, commitment_hash(step, share, self.id, b"or so"), roster)

    def speed(self) -> int:
        return 2**40 if self.lie("claims to be fast") else super().speed()

    # As a peer.

    def asked(self, peer: ToyClient, what: str, name: bytes) -> None:
        if what == "model" and self.lie("hands out a wrong model"):
            self.network.send(self, peer, peer.given_model, name, ToyModel(WRONG_MODEL, 1))
        else:
            super().asked(peer, what, name)

    def holding(self) -> bytes:
        if self.view is not None and self.lie("claims to hold the model"):
            return self.view.model_hash
        return super().holding()

    # As a sender of anything at any time.

    def beat(self) -> None:
        super().beat()
        view = self.view
        if self.retired or view is None or not view.epoch.clients:
            return
        victim = self.loop.random.choice(view.epoch.clients).id
        if self.lie("accuses the healthy"):
            accused = self.loop.random.choice((victim, victim, bytes(32)))
            self.submit(m.HealthCheck(self.id, (accused,), self.speed()))
        if self.lie("is ready without the model"):
            self.submit(m.Ready(self.id, view.epoch_number))
        if self.lie("spoofs senders"):
            self.submit(m.Withdraw(victim))
            self.submit(m.Ready(victim, view.epoch_number))

    def _store(self, view: Coordinator, place: int, again: bool) -> None:
        if not self.lie("reports a checkpoint that is not there"):
            super()._store(view, place, again)
            return
        # Nothing; or another model, stored by someone some time ago, or by the liar just now.
        own = f"{view.run.model.checkpoint}/lie-{self.id.hex()[:8]}"
        self.audit.tell(ModelStored(own, WRONG_MODEL, "1"))
        where = self.loop.random.choice([*self.audit.stored, own, f"{own}-nothing"])
        found = self.audit.stored.get(where)
        name = found.hash if found else view.model_hash
        self.submit(m.OpportunisticCooldown(self.id, view.epoch_number, where, name))
