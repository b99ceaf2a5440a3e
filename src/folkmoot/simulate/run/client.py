"""A client in the worlds of a run: the client's machine (`core/coordinator/client`), and its shell.

Messages to the coordinator are sent again until they are answered, as over a connection, and what
the machine asks for is carried out in simulated time. The model is a toy whose hash is a pure
function of the results it learnt, so that a divergence shows at once.
"""

from __future__ import annotations

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import total
from folkmoot.core.coordinator.client import machine
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.guards import ASK_TRIES
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.client.state import ClientState, Phase
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.coordinator.state import CheckpointSource, Coordinator
from folkmoot.core.machine import StateChanged
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.node import Node
from folkmoot.simulate.run.audit import (
    CalledGone,
    GaveUp,
    ModelLearnt,
    ModelStored,
    ResultPublished,
    RunAudit,
    ToyModel,
    WaitedFor,
)
from folkmoot.simulate.run.coordinator import RunCoordinator
from folkmoot.simulate.run.directions import direction
from folkmoot.simulate.run.patience import Patience
from folkmoot.simulate.run.reference import GENESIS, learn, mask

WATCH = 1500  # milliseconds between two looks at the state, when nothing is told
RESEND = 1000
TRIES = 8


class ClientNode(Node):
    honest = True

    def __init__(
        self,
        loop: Loop,
        network: Network,
        coordinator: RunCoordinator,
        audit: RunAudit,
        peers: dict[bytes, ClientNode],
        identity: bytes,
    ) -> None:
        super().__init__(loop)
        self.network, self.coordinator = network, coordinator
        self.audit, self.peers = audit, peers
        self.id = identity
        self.sample_time = loop.random.uniform(20, 250)
        self.forget()

    def forget(self) -> None:
        self.client = ClientState(self.id, self.audit.config.run_id)
        self.version = -1  # of the state it saw last
        self.alarm = -1
        self.gave_up = -1  # the last epoch in which it went on without a result
        self.model = ToyModel(b"", 0)
        self.shared = self.model  # what peers may have a copy of
        self.wanted: tuple[int, bytes, int] | None = None  # epoch, model, tries left
        self.stopped = -1  # the last epoch whose work was given up
        self.abandoned: set[tuple[int, int]] = set()
        self.unanswered: list[m.AnyEvent] = []
        self.questions: dict[bytes, int] = {}  # since when a peer has not answered
        self.patience = Patience()
        self.called: tuple[bytes, ...] = ()  # who is gone, as we said last

    def start(self) -> None:
        self.after(self.loop.random.uniform(0, 200), self.watch)

    def crash(self, pause: float) -> None:
        super().crash(pause)
        self.coordinator.lose(self)

    def watch(self) -> None:
        """Look at the state again and again."""
        self.after(WATCH, self.watch)
        self.network.send(self, self.coordinator, self.coordinator.show, self)

    def see(self, version: int, state: Coordinator) -> None:
        if version > self.version:
            self.version = version
            self.happen(c.Saw(state))

    def happen(self, event: c.Event) -> None:
        client = self.client
        self.asked = client.asked
        if isinstance(event, c.Heard):
            self.questions.pop(event.peer, None)
        self.patience.note(client, event, self.loop.now)
        effects = machine.apply(client, event, self.loop.now)
        self._look_at_patience(event, effects)
        for effect in effects:
            self.do(effect)
        if client.shown is None:
            return
        due = max(machine.next_tick(self.client, self.loop.now), self.loop.now + 1)
        if self.alarm <= self.loop.now or due < self.alarm:
            self.alarm = due
            self.after((due - self.loop.now) * self.rate, self._ring, due)

    def _look_at_patience(self, event: c.Event, effects: list[c.Effect]) -> None:
        waited = self.patience.look(self.client, effects, self.loop.now)
        if not self.honest:
            return
        # What comes with another event than its own alarm may be late for many reasons, and an
        # alarm of one who stood still meanwhile.
        on_time = isinstance(event, c.Tick) and self.frozen_until <= self.patience.began
        if waited and (on_time or waited[0] < waited[1]):
            self.audit.tell(WaitedFor(self.id, *waited))
        elif isinstance(event, c.Unavailable) and self.patience.in_vain(self.client):
            self.audit.tell(WaitedFor(self.id, self.loop.now - self.patience.began, 0))

    def _ring(self, due: int) -> None:
        if due == self.alarm:
            self.happen(c.Tick())

    def do(self, effect: c.Effect) -> None:
        """Carry out what the machine asks for."""
        match effect:
            case StateChanged(Phase.Ready, Phase.Ready | Phase.Learning):
                if self.asked >= ASK_TRIES:
                    self.gave_up = self.client.epoch
                    self.audit.tell(GaveUp(self.id, self.gave_up))
            case c.Submit(message):
                if isinstance(message, m.CallGone):
                    self._note_gone(message.gone)
                self.unanswered.append(message)
                self._send(message, TRIES)
            case c.Load():
                self._load(effect)
            case c.ShareModel():
                self.shared = self.model
            case c.Learn():
                self._learn(effect)
            case c.Train(epoch, height, step, share):
                commitment = commitment_hash(step, share, self.id)
                result = Result(epoch, height, self.id, commitment, commitment, 1)
                self.after(total(share) * self.sample_time, self._trained, result)
            case c.Audit():
                self.after(5 * len(effect.trials), self._audited, effect)
            case c.Tell(result):
                self.gossip(result, self.roster())
            case c.Fetch(result):
                # In these worlds bytes travel with their offer, or not at all.
                if self.peers[result.sender].withholds(result):
                    self.happen(c.Unavailable(result))
                else:
                    self.given_result(result)
            case c.Ask():
                for peer in (self.peers[identity] for identity in self.roster()):
                    self.network.send(self, peer, peer.asked_results, self, effect)
            case c.Probe(peers):
                for name in peers:
                    self.questions.setdefault(name, self.loop.now)
                for peer in (self.peers[name] for name in peers if name in self.peers):
                    self.network.send(self, peer, peer.probed, self)
            case c.Upload(epoch) | c.Save(epoch):
                took = self.loop.random.uniform(100, 3000)
                self.after(took, self._uploaded, epoch, self.model)
            case c.Abandon(epoch, height):
                self.abandoned.add((epoch, height))
            case c.Stop(epoch):
                self.stopped = epoch

    # The coordinator.

    def submit(self, message: m.AnyEvent) -> None:
        self.network.send(self, self.coordinator, self.coordinator.receive, self, message)

    def _send(self, message: m.AnyEvent, tries: int) -> None:
        if tries and any(one is message for one in self.unanswered):
            self.submit(message)
            self.after(RESEND, self._send, message, tries - 1)

    def answered(self, message: m.AnyEvent, refused: m.Refused | None = None) -> None:
        """The coordinator took a message, or refused it."""
        known = len(self.unanswered)
        self.unanswered = [one for one in self.unanswered if one is not message]
        if refused is not None and len(self.unanswered) < known:
            self.happen(c.WasRefused(message, refused))

    # The model.

    def _load(self, load: c.Load) -> None:
        if load.checkpoint.source is CheckpointSource.P2P:
            self.wanted = (load.epoch, load.model_hash, TRIES)
            self._seek(load.holders)
            return
        stored = self.audit.stored.get(load.checkpoint.location)
        from_store = load.checkpoint.source is CheckpointSource.Stored and stored is not None
        model = stored if from_store and stored else ToyModel(GENESIS, 0)
        self.after(self.loop.random.uniform(50, 400), self._have, load.epoch, model)

    def _seek(self, holders: tuple[bytes, ...]) -> None:
        """Ask one holder after the other."""
        if self.wanted is None:
            return
        epoch, name, tries = self.wanted
        if name == self.model.hash:
            self._have(epoch, self.model)
            return
        others = [h for h in holders if h != self.id]
        if not tries or not others:
            self.wanted = None
            self.happen(c.NotLoaded(epoch))
            return
        self.wanted = (epoch, name, tries - 1)
        peer = self.peers.get(self.loop.random.choice(others))
        if peer is not None:
            self.network.send(self, peer, peer.asked_model, self, name)
        self.after(RESEND, self._seek, holders)

    def asked_model(self, peer: ClientNode, name: bytes) -> None:
        if name == self.shared.hash:
            self.network.send(self, peer, peer.given_model, name, self.shared)

    def given_model(self, name: bytes, model: ToyModel) -> None:
        # A peer may lie: what it hands over must have the hash that the quorum agreed on.
        if self.wanted is not None and self.wanted[1] == name == model.hash:
            self._have(self.wanted[0], model)

    def _have(self, epoch: int, model: ToyModel) -> None:
        self.wanted = None
        if epoch > self.stopped and self.client.epoch == epoch:
            self._hold(epoch, 0, model)
            self.happen(c.Loaded(epoch, model.hash))

    def _hold(self, epoch: int, height: int, model: ToyModel) -> None:
        self.model = model
        if self.honest or self.gave_up == epoch:
            self.audit.tell(ModelLearnt(self.id, epoch, height, model.hash, f"{model.samples:x}"))

    def _learn(self, action: c.Learn) -> None:
        assert self.client.shown is not None
        delay = self.client.shown.run.config.delay
        shares = self.client.ledgers[action.height - 1 - delay].shares
        samples = self.model.samples
        for result in action.results:
            samples |= mask(shares[result.sender])
        name = learn(self.model.hash, [result.commitment for result in action.results])
        self._hold(action.epoch, action.height, ToyModel(name, samples))
        self.after(5, self.happen, c.Learnt(action.epoch, action.height, name))

    # Results.

    def _trained(self, result: Result) -> None:
        if result.epoch > self.stopped and (result.epoch, result.height) not in self.abandoned:
            speed = int(1000 / self.sample_time)
            self.happen(c.Trained(result, speed, sketch=self.sketch(result)))

    def sketch(self, result: Result) -> bytes:
        """What stands for the direction of one of our results."""
        return direction("all", result)

    def gossip(self, result: Result, to: list[bytes]) -> None:
        about = (result.epoch, result.height, result.sender, result.commitment)
        self.audit.tell(ResultPublished(*about, self.sends_nonsense(result)))
        for peer in (self.peers[identity] for identity in to):
            self.network.send(self, peer, peer.hear, result)

    def withholds(self, result: Result) -> bool:
        """Whether it tells of a result and gives it to nobody who asks."""
        return False

    def sends_nonsense(self, result: Result) -> bool:
        return False

    def _audited(self, action: c.Audit) -> None:
        """In these worlds an audit always finds the truth."""
        makers = {trial.result.sender: trial.result for trial in action.trials}
        failed = {name for name in makers if self.peers[name].sends_nonsense(makers[name])}
        verdicts = (tuple(makers.keys() - failed), tuple(failed))
        self.happen(c.Audited(action.epoch, action.height, *verdicts))

    def roster(self) -> list[bytes]:
        """The other clients of the epoch."""
        clients = self.client.shown.epoch.clients if self.client.shown else ()
        return [x.id for x in clients if x.id in self.peers and x.id != self.id]

    def hear(self, result: Result) -> None:
        self.happen(c.Offered(result))

    def asked_results(self, peer: ClientNode, ask: c.Ask) -> None:
        ledger = self.client.ledgers.get(ask.height) if ask.epoch == self.client.epoch else None
        if ledger is None:
            return
        for sender in ask.shares:
            for result in ledger.own(sender).values():
                if result.commitment in ask.attested and result.commitment in ledger.sound:
                    self.network.send(self, peer, peer.given_result, result)

    def given_result(self, result: Result) -> None:
        self.happen(c.Arrived(result, self.peers[result.sender].sketch(result)))

    def _note_gone(self, names: tuple[bytes, ...]) -> None:
        for name in set(names) - set(self.called) if self.honest else ():
            waited = self.loop.now - self.questions.get(name, self.loop.now)
            self.audit.tell(CalledGone(self.id, name, waited))
        self.called = names

    def probed(self, peer: ClientNode) -> None:
        self.network.send(self, peer, peer.happen, c.Heard(self.id))

    # The checkpoint.

    def _uploaded(self, epoch: int, model: ToyModel) -> None:
        root = self.client.shown.run.model.checkpoint if self.client.shown else ""
        if epoch > self.stopped and root:
            location = f"{root}/{epoch}-{model.hash.hex()[:8]}-{self.id.hex()[:8]}"
            self.audit.tell(ModelStored(location, model.hash, f"{model.samples:x}"))
            self.happen(c.Uploaded(epoch, location, model.hash))
