"""A small client of a simulated run: it acts on the last state it saw, as a real one does.

Its model is a toy whose hash is a pure function of the results it learnt, so that a divergence
shows at once. It trains in simulated time, gossips results, witnesses, accuses, stores, re-syncs
from its peers when it is behind, and joins again when it was dropped.
"""

from __future__ import annotations

from typing import NamedTuple

from folkmoot.core import bloom
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share, total
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.coordinator.committee import is_checkpointer
from folkmoot.core.coordinator.conditions import nothing_to_store
from folkmoot.core.coordinator.health import participant_item
from folkmoot.core.coordinator.state import Coordinator, Phase, Round, Source
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node
from folkmoot.simulate.run.audit import (
    ModelLearnt,
    ModelStored,
    ResultPublished,
    RunAudit,
    ToyModel,
)
from folkmoot.simulate.run.coordinator import RunCoordinator
from folkmoot.simulate.run.reference import GENESIS, learn

IN_ROUND = (Phase.RoundTrain, Phase.RoundWitness)
HISTORY = 8  # models a client can hand to a peer


class Standing(NamedTuple):
    """A client's model as it stands at the beginning of a round."""

    epoch: int
    height: int
    model: ToyModel


class ToyClient(Node):
    honest = True
    wants_answers = False  # whether the coordinator should say what became of each message

    def __init__(
        self,
        loop: Loop,
        network: Network,
        coordinator: RunCoordinator,
        audit: RunAudit,
        peers: dict[bytes, ToyClient],
        identity: bytes,
    ) -> None:
        super().__init__(loop)
        self.network, self.coordinator = network, coordinator
        self.audit, self.peers = audit, peers
        self.id = identity
        timeout = audit.config.config.health_check_timeout * 1000
        self.beat_every = timeout / 5
        self.sample_time = loop.random.uniform(20, 250)
        self.forget()

    def forget(self) -> None:
        self.view: Coordinator | None = None
        self.version = -1
        self.standing: Standing | None = None
        self.history: dict[bytes, ToyModel] = {}
        # Results by (epoch, height) and trainer; what was received first is what is attested.
        self.results: dict[tuple[int, int], dict[bytes, bytes]] = {}
        self.payloads: set[bytes] = set()
        self.trained: dict[tuple[int, int], bool] = {}  # False while it trains
        self.said: dict[tuple[int, int], m.OpportunisticWitness] = {}
        self.uploading = -1
        self.upload: m.OpportunisticCooldown | None = None
        self.loading = -1

    def start(self) -> None:
        self.after(self.loop.random.uniform(0, 200), self.beat)

    # What it does again and again.

    def beat(self) -> None:
        """Show a sign of life, accuse the idle, and repeat what may have been lost."""
        self.after(self.beat_every, self.beat)
        view = self.view
        if view is None or self._must_join(view):
            self.submit(m.Join(self.id, self.audit.config.run_id, self.holding()))
        else:
            self.submit(m.HealthCheck(self.id, (), self.speed()))
            idle = self.idle(view)
            if idle:
                # Apart from the sign of life: it is refused when the accused has worked since.
                self.submit(m.HealthCheck(self.id, idle, self.speed()))
        if view is not None:
            self.act(view, again=True)

    def submit(self, message: m.AnyEvent) -> None:
        self.network.send(self, self.coordinator, self.coordinator.receive, self, message)

    def speed(self) -> int:
        return int(1000 / self.sample_time)

    def holding(self) -> bytes:
        return self.standing.model.hash if self.standing else b""

    def _must_join(self, view: Coordinator) -> bool:
        if view.phase is Phase.Finished or self.place(view) is not None:
            return False
        waiting = view.pending.get(self.id)
        # The run believes that everyone of an epoch holds its model: put it right.
        return waiting is None or waiting.model_hash not in (b"", self.holding())

    def idle(self, view: Coordinator) -> tuple[bytes, ...]:
        judged = view.epoch.judged
        if judged is None or view.phase not in IN_ROUND:
            return ()
        clients = [view.epoch.clients[place] for place in judged.unhealthy]
        return tuple(c.id for c in clients if not c.left and c.id != self.id)

    def place(self, view: Coordinator) -> int | None:
        """Its place in the epoch, if it is a member."""
        place = view.find(self.id)
        return None if place is None or view.epoch.clients[place].left else place

    # What it does when it learns of a new state.

    def see(self, version: int, view: Coordinator) -> None:
        if version > self.version:
            self.version, self.view = version, view
            self.act(view, again=False)

    def act(self, view: Coordinator, again: bool) -> None:
        place = self.place(view)
        if place is None or not view.epoch.clients:
            return
        self._acquire(view)
        if view.phase is Phase.Warmup:
            if self.standing and self.standing.epoch == view.epoch_number:
                self.submit(m.Ready(self.id, view.epoch_number))
            return
        self._catch_up(view)
        if view.phase in IN_ROUND:
            self._train(view, place)
            self._witness(view, place, again)
        elif view.phase is Phase.Cooldown:
            self._store(view, place, again)

    # The model.

    def _acquire(self, view: Coordinator) -> None:
        """Get a model to stand on: its own, a stored one, or the quorum's from a peer."""
        epoch, standing = view.epoch_number, self.standing
        agreed = view.epoch.agreed_height
        height = 0 if agreed is None else agreed
        oldest = view.epoch.rounds[0].height if view.epoch.rounds else 0
        if standing and standing.epoch == epoch:
            behind = standing.height < max(oldest, oldest + view.run.config.delay * (oldest > 0))
            wrong = standing.height == agreed and standing.model.hash != view.model_hash
            if not (wrong or (behind and height > standing.height)):
                return
        if agreed is None and view.checkpoint.source is not Source.P2P:
            if self.loading != epoch:
                self.loading = epoch
                self.after(self.loop.random.uniform(50, 400), self._loaded, epoch)
            return
        if view.phase is Phase.Cooldown and view.checkpoint.source is not Source.P2P:
            return
        wanted = view.model_hash
        if standing and standing.model.hash == wanted:
            self._stand(Standing(epoch, height, standing.model))
        elif wanted in self.history:
            self._stand(Standing(epoch, height, self.history[wanted]))
        else:
            self._ask(view, "model", wanted)

    def _loaded(self, epoch: int) -> None:
        """The model that the epoch begins with, from the store or from the run's seed."""
        self.loading = -1
        view = self.view
        if view is None or view.epoch_number != epoch or view.epoch.agreed_height is not None:
            return
        if view.checkpoint.source is Source.P2P or not view.epoch.clients:
            return
        stored = self.audit.stored.get(view.checkpoint.location)
        model = (
            stored if view.checkpoint.source is Source.Stored and stored else ToyModel(GENESIS, 0)
        )
        if self.standing is None or self.standing.epoch != epoch:
            self._stand(Standing(epoch, 0, model))
            self.act(view, again=False)

    def _stand(self, standing: Standing) -> None:
        self.standing = standing
        model = standing.model
        self.history.pop(model.hash, None)
        self.history[model.hash] = model
        if len(self.history) > HISTORY:
            del self.history[next(iter(self.history))]
        if self.honest:
            samples = f"{model.samples:x}"
            self.audit.tell(
                ModelLearnt(self.id, standing.epoch, standing.height, model.hash, samples)
            )

    def _catch_up(self, view: Coordinator) -> None:
        """Apply what the closed rounds agreed on."""
        at, delay = self.standing, view.run.config.delay
        if at is None or at.epoch != view.epoch_number:
            return
        end = view.round.height + (view.phase is Phase.Cooldown)
        while at.height < end:
            model = at.model
            by, work = view.round_at(at.height), view.round_at(at.height - delay)
            if by is None or (work is None and at.height >= delay):
                return  # too far behind: `_acquire` waits for the quorum's next agreement
            if work is not None and work.spans:
                learnt = self.audit.committees.learnt(view, by, work)
                missing = [one.commitment for one in learnt if one.commitment not in self.payloads]
                if missing:
                    for commitment in missing:
                        self._ask(view, "payload", commitment)
                    return
                samples = model.samples
                for one in learnt:
                    samples |= one.samples
                name = learn(model.hash, [one.commitment for one in learnt])
                model = ToyModel(name, samples)
            at = Standing(at.epoch, at.height + 1, model)
            self._stand(at)

    def _ask(self, view: Coordinator, what: str, name: bytes) -> None:
        others = [c.id for c in view.epoch.clients if c.id != self.id and not c.left]
        if others:
            peer = self.peers.get(self.loop.random.choice(others))
            if peer is not None:
                self.network.send(self, peer, peer.asked, self, what, name)

    def asked(self, peer: ToyClient, what: str, name: bytes) -> None:
        if what == "model" and name in self.history:
            self.network.send(self, peer, peer.given_model, name, self.history[name])
        elif what == "payload" and name in self.payloads:
            self.network.send(self, peer, peer.given_payload, name)

    def asked_result(self, peer: ToyClient, key: tuple[int, int], trainer: bytes) -> None:
        commitment = self.results.get(key, {}).get(trainer)
        if commitment is not None:
            self.network.send(self, peer, peer.hear, key, trainer, commitment)

    def answered(self, message: m.AnyEvent, refused: m.Refused | None = None) -> None:
        """The coordinator took a message, or refused it."""

    def given_model(self, name: bytes, model: ToyModel) -> None:
        view = self.view
        # A peer may lie: what it hands over must have the hash that the quorum agreed on.
        if view is None or model.hash != name or view.model_hash != name or not view.epoch.clients:
            return
        self.history[name] = model
        self.act(view, again=False)

    def given_payload(self, commitment: bytes) -> None:
        if commitment not in self.payloads:
            self.payloads.add(commitment)
            if self.view is not None:
                self.act(self.view, again=False)

    # The work of a round.

    def synced(self, view: Coordinator) -> bool:
        at = self.standing
        return at is not None and (at.epoch, at.height) == (view.epoch_number, view.round.height)

    def _train(self, view: Coordinator, place: int) -> None:
        key = (view.epoch_number, view.round.height)
        if key in self.trained or not view.round.spans or not self.synced(view):
            return
        if view.phase is not Phase.RoundTrain:
            return
        shares = dict(self.audit.committees.shares(view, view.round))
        share = shares.get(place, ())
        self.trained[key] = not share
        if share:
            roster = [c.id for c in view.epoch.clients if not c.left]
            took = total(share) * self.sample_time
            self.after(took, self._finish, key, view.round.step, share, roster)

    def _finish(self, key: tuple[int, int], step: int, share: Share, roster: list[bytes]) -> None:
        self.trained[key] = True
        self.publish(key, step, share, roster)
        if self.view is not None:
            self.act(self.view, again=False)

    def publish(self, key: tuple[int, int], step: int, share: Share, roster: list[bytes]) -> None:
        """Gossip a result to everyone of the round."""
        self.gossip(key, commitment_hash(step, share, self.id), roster)

    def gossip(self, key: tuple[int, int], commitment: bytes, to: list[bytes]) -> None:
        self.audit.tell(ResultPublished(*key, self.id, commitment))
        for identity in to:
            peer = self.peers.get(identity)
            if peer is self:
                self.hear(key, self.id, commitment)
            elif peer is not None:
                self.network.send(self, peer, peer.hear, key, self.id, commitment)

    def hear(self, key: tuple[int, int], trainer: bytes, commitment: bytes) -> None:
        """A result arrives."""
        self.results.setdefault(key, {}).setdefault(trainer, commitment)
        self.payloads.add(commitment)
        view = self.view
        if view is not None and view.phase is Phase.RoundTrain and trainer != self.id:
            place = self.place(view)
            if place is not None and key[1] == view.round.height - view.run.config.delay:
                self._witness(view, place, again=False)

    # The witness.

    def _witness(self, view: Coordinator, place: int, again: bool) -> None:
        """Attest when there is nothing left to wait for, or when the round closes."""
        current = view.round
        key = (view.epoch_number, current.height)
        index = view.index(current, place)
        if index is None or (key in self.said and not again):
            return
        if not self.audit.committees.proof(view, current, index).witness:
            return
        if any(witness.proof.index == index for witness in current.witnesses):
            return
        if key not in self.said:
            if not self.synced(view):
                return  # it does not know the model that it should vouch for
            if view.phase is Phase.RoundTrain and not self._holds_everything(view):
                return
            self.said[key] = self.testimony(view, current, index)
        self.submit(self.said[key])

    def _holds_everything(self, view: Coordinator) -> bool:
        epoch, height = view.epoch_number, view.round.height
        if not self.synced(view) or (view.round.spans and not self.trained.get((epoch, height))):
            return False
        work = view.round_at(height - view.run.config.delay)
        if work is None or not work.spans:
            return True
        held = self.results.get((epoch, work.height), {})
        workers = self.audit.committees.shares(view, work)
        return all(view.epoch.clients[place].id in held for place, _ in workers)

    def testimony(self, view: Coordinator, current: Round, index: int) -> m.OpportunisticWitness:
        """What it truly received, and the model it truly holds."""
        height = current.height - view.run.config.delay
        work = view.round_at(height)
        held = self.results.get((view.epoch_number, height), {})
        workers = self.audit.committees.shares(view, work) if work and work.spans else []
        ids = [view.epoch.clients[place].id for place, _ in workers]
        seen = [identity for identity in ids if identity in held]
        shape = view.bloom_shape(current, index)
        participants, broadcasts = bytes(shape.bits // 8), bytes(shape.bits // 8)
        if seen:
            participants = bloom.fill([participant_item(identity) for identity in seen], shape)
            broadcasts = bloom.fill([held[identity] for identity in seen], shape)
        assert self.standing is not None
        return m.OpportunisticWitness(
            self.id,
            view.epoch_number,
            current.height,
            self.audit.committees.proof(view, current, index),
            participants,
            broadcasts,
            bytes(32),
            self.standing.model.hash,
        )

    # The checkpoint.

    def _store(self, view: Coordinator, place: int, again: bool) -> None:
        if again and self.upload and self.upload.epoch == view.epoch_number:
            self.submit(self.upload)
        at, election = self.standing, view.epoch.cooldown
        if self.uploading == view.epoch_number or nothing_to_store(view) or election is None:
            return
        index = view.index(election, place)
        if at is None or at.model.hash != view.model_hash or index is None:
            return
        if is_checkpointer(index, view.roster_size(election), election.seed):
            self.uploading = view.epoch_number
            self.after(self.loop.random.uniform(100, 3000), self._stored, view, at.model)

    def _stored(self, asked: Coordinator, model: ToyModel) -> None:
        now = self.view
        if now is None or now.epoch_number != asked.epoch_number or now.epoch.checkpointed:
            return  # another one succeeded: cancelled
        location = f"{asked.run.model.checkpoint}/{asked.epoch_number}-{self.id.hex()[:8]}"
        self.audit.tell(ModelStored(location, model.hash, f"{model.samples:x}"))
        self.upload = m.OpportunisticCooldown(self.id, asked.epoch_number, location, model.hash)
        self.submit(self.upload)
