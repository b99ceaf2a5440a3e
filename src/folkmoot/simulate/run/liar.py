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
from folkmoot.core.coordinator.audits import auditors
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.health import participant_item
from folkmoot.core.coordinator.receive import member
from folkmoot.core.coordinator.state import Coordinator, Phase, Round
from folkmoot.simulate.run import reference
from folkmoot.simulate.run.audit import AuditedFalsely, ModelStored, ToyModel
from folkmoot.simulate.run.client import ClientNode
from folkmoot.simulate.run.committees import witnesses
from folkmoot.simulate.run.directions import direction

WITNESS_LIES = (
    "claims everyone worked",
    "claims nobody worked",
    "names a wrong model",
    "sends a full filter",
    "speaks for another index",
    "speaks of another round",
    "proves twice",
    "claims to be elected",
    "screens the honest",
)
OTHER_LIES = (
    "equivocates",
    "trains nothing",
    "claims to hold the model",
    "hands out a wrong model",
    "accuses the healthy",
    "calls the living gone",
    "is ready without the model",
    "reports a checkpoint that is not there",
    "spoofs senders",
    "claims to be fast",
    "sends nonsense",
    "withholds its results",
)
WRONG_MODEL = sha256(b"a model that the liars made up").digest()


class LyingClient(ClientNode):
    """Its machine is honest; what it asks for is carried out with lies."""

    honest = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        random: Random = self.loop.random
        self.lies = {
            *random.sample(WITNESS_LIES, random.randint(1, 4)),
            *random.sample(OTHER_LIES, random.randint(2, 5)),
        }

    @property
    def lies_on_audits(self) -> bool:
        """Those who do agree on it: the honest failed, and their own passed."""
        return self.id[1] % 2 == 0

    def sends_nonsense(self, result: Result) -> bool:
        """Whatever it sends in an epoch, or nothing. One liar at a time: two of four results would
        outvote the rest, which no comparison of them can help."""
        state = self.client.shown
        liars = [x for x in self.peers.values() if isinstance(x, LyingClient)]
        if "sends nonsense" not in self.lies or liars[0] is not self or state is None:
            return False
        return not self.retired

    def withholds(self, result: Result) -> bool:
        """To some of its peers it gives them."""
        return self.lie("withholds its results")

    def sketch(self, result: Result) -> bytes:
        toward = ("against", "nowhere")[self.id[0] % 2] if self.sends_nonsense(result) else "all"
        return direction(toward, result)

    def lie(self, name: str) -> bool:
        return name in self.lies and not self.retired and self.loop.chance(0.7)

    def may_lie(self, state: Coordinator, round_: Round) -> bool:
        """Whether fewer liars than a quorum are among the elected."""
        places = witnesses(state, round_)
        ids = [state.epoch.clients[place].id for place in places]
        liars = sum(isinstance(self.peers.get(i), LyingClient) for i in ids)
        return liars < reference.quorum(len(places))

    def do(self, effect: c.Effect) -> None:
        state = self.client.shown
        if self.retired or state is None:
            super().do(effect)
            return
        match effect:
            case c.Submit(m.OpportunisticWitness() as truth):
                if truth.height == state.round.height and self.may_lie(state, state.round):
                    effect = c.Submit(self._testify(state, truth))
            case c.Submit(m.Join() as join) if self.lie("claims to hold the model"):
                effect = c.Submit(replace(join, model_hash=state.model_hash))
            case c.Submit(m.HealthCheck() as sign) if self.lie("claims to be fast"):
                effect = c.Submit(replace(sign, tokens_per_second=2**40))
            case c.Train(epoch, height) if self.lie("trains nothing"):
                self.happen(c.NotTrained(epoch, height))
                return
            case c.Tell(result) if self.lie("equivocates"):
                other = sha256(result.commitment).digest()
                roster = self.roster()
                half = self.loop.random.sample(roster, len(roster) // 2)
                self.gossip(replace(result, commitment=other, blob=other), half)
            case c.Upload() | c.Save() if self.lie("reports a checkpoint that is not there"):
                self._store_nothing(state)
                return
        super().do(effect)

    # As a witness.

    def _testify(self, state: Coordinator, truth: m.OpportunisticWitness) -> m.OpportunisticWitness:
        current, random = state.round, self.loop.random
        shape = state.bloom_shape(current, truth.proof.index)
        if self.lie("sends a full filter"):
            ones = b"\xff" * (shape.bits // 8)
            self.submit(replace(truth, participant_bloom=ones, broadcast_bloom=ones))
        if self.lie("speaks for another index"):
            other = random.randrange(state.roster_size(current))
            proof = state.committee(current).get_witness(other)
            self.submit(replace(truth, proof=replace(proof, witness=True)))
        if self.lie("speaks of another round"):
            self.submit(replace(truth, height=current.height + random.choice((-1, 1))))
        if self.lie("claims everyone worked"):
            items = [participant_item(client.id) for client in state.epoch.clients]
            truth = replace(truth, participant_bloom=bloom.fill(items, shape))
        if self.lie("claims nobody worked"):
            nothing = bytes(shape.bits // 8)
            truth = replace(truth, participant_bloom=nothing, broadcast_bloom=nothing)
        if self.lie("screens the honest"):
            places = range(len(state.epoch.clients))
            truth = replace(truth, screened=tuple(random.sample(places, len(places) // 2)))
            self.submit(truth)  # in no order; a moment later as it should be
            truth = replace(truth, screened=tuple(sorted(truth.screened)))
        if self.lies_on_audits:
            truth = self._misjudge(state, truth)
        if self.lie("names a wrong model"):
            truth = replace(truth, model_hash=WRONG_MODEL)
        if self.lie("proves twice"):
            self.submit(truth)
            self.submit(replace(truth, model_hash=WRONG_MODEL))
        return truth

    def _misjudge(
        self, state: Coordinator, truth: m.OpportunisticWitness
    ) -> m.OpportunisticWitness:
        """Unless they are a quorum of a result's auditors, who could say anything of it."""
        given = auditors(state, state.round)
        liars = {p for p, x in enumerate(state.epoch.clients) if self._is_liar(x.id)}
        makers = [p for p in (*truth.passed, *truth.failed) if _outvoted(given[p], liars)]
        self.audit.tell(AuditedFalsely(self.id))
        # What was not given to it as well; a moment later as it should be.
        everybody = tuple(range(len(state.epoch.clients)))
        self.submit(replace(truth, passed=(), failed=everybody))
        failed = {p for p in makers if p not in liars} | (set(truth.failed) - set(makers))
        passed = {*truth.passed, *truth.failed} - failed
        return replace(truth, passed=tuple(sorted(passed)), failed=tuple(sorted(failed)))

    def _is_liar(self, identity: bytes) -> bool:
        return isinstance(self.peers.get(identity), LyingClient)

    def _claim_election(self, state: Coordinator, index: int) -> None:
        current = state.round
        proof = state.committee(current).get_witness(index)
        if not proof.witness:
            forged = replace(proof, witness=True, position=self.loop.random.choice((0, 99)))
            nothing = bytes(state.bloom_shape(current, index).bits // 8)
            where = (self.id, state.epoch_number, current.height)
            self.submit(
                m.OpportunisticWitness(
                    *where, forged, nothing, nothing, bytes(32), state.model_hash
                )
            )

    # As a peer.

    def asked_model(self, peer: ClientNode, name: bytes) -> None:
        if self.lie("hands out a wrong model"):
            self.network.send(self, peer, peer.given_model, name, ToyModel(WRONG_MODEL, 1))
        else:
            super().asked_model(peer, name)

    # As a sender of anything at any time.

    def watch(self) -> None:
        super().watch()
        state = self.client.shown
        if self.retired or state is None or not state.epoch.clients:
            return
        victim = self.loop.random.choice(state.epoch.clients).id
        if self.lie("accuses the healthy"):
            accused = self.loop.random.choice((victim, victim, bytes(32)))
            self.submit(m.HealthCheck(self.id, (accused,)))
        if self.lie("calls the living gone"):
            self._call_gone(state)
        if self.lie("is ready without the model"):
            self.submit(m.Ready(self.id, state.epoch_number))
        wanted = state.phase is Phase.Cooldown or state.epoch.saving is not None
        if wanted and self.lie("reports a checkpoint that is not there"):
            self._store_nothing(state)
        if self.lie("spoofs senders"):
            self.submit(m.Withdraw(victim))
            self.submit(m.Ready(victim, state.epoch_number))
        place = member(state, self.id)
        index = (
            state.index(state.round, place) if state.epoch.rounds and place is not None else None
        )
        if index is not None and self.lie("claims to be elected"):
            self._claim_election(state, index)

    def _call_gone(self, state: Coordinator) -> None:
        """All honest clients, as all liars of the world do: where these are a quorum, they win."""
        election = state.election
        if election is not None and self.may_lie(state, election):
            honest = (x.id for x in state.epoch.clients if self.peers.get(x.id, self).honest)
            where, names = (state.epoch_number, election.height), tuple(honest)
            self.submit(m.CallGone(self.id, *where, names, names))

    def _store_nothing(self, state: Coordinator) -> None:
        """Nothing; or another model, stored by someone some time ago, or by the liar just now."""
        own = f"{state.run.model.checkpoint}/lie-{self.id.hex()[:8]}"
        self.audit.tell(ModelStored(own, WRONG_MODEL, "1"))
        where = self.loop.random.choice([*self.audit.stored, own, f"{own}-nothing"])
        found = self.audit.stored.get(where)
        saving = state.epoch.saving
        name = found.hash if found else saving.model_hash if saving else state.model_hash
        self.submit(m.OpportunisticCooldown(self.id, state.epoch_number, where, name))


def _outvoted(auditors: tuple[int, ...], liars: set[int]) -> bool:
    return len(liars & set(auditors)) < reference.quorum(len(auditors))
