"""The real client's machine (`core/coordinator/client`) in the worlds of `run`, not the toy.

Here is its shell: messages to the coordinator are sent again until they are answered, as over a
connection, and what the machine asks for is carried out in simulated time.
"""

from __future__ import annotations

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import total
from folkmoot.core.coordinator.client import machine
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.coordinator.commitment import commitment_hash
from folkmoot.core.coordinator.state import Coordinator, Source
from folkmoot.simulate.run.audit import ModelStored, ToyModel
from folkmoot.simulate.run.reference import GENESIS, learn
from folkmoot.simulate.run.toy_client import Standing, ToyClient

WATCH = 900  # milliseconds between two looks at the state, when nothing is told
RESEND = 700
TRIES = 8


class RealClient(ToyClient):
    wants_answers = True

    def forget(self) -> None:
        super().forget()
        self.client = ClientState(self.id, self.audit.config.run_id)
        self.alarm = -1
        self.stopped = -1  # the last epoch whose work was given up
        self.abandoned: set[tuple[int, int]] = set()
        self.unanswered: list[m.AnyEvent] = []
        self.wanted: tuple[int, bytes, int] | None = None  # epoch, model, tries left

    def beat(self) -> None:
        """Look at the state, and send again what was not answered."""
        self.after(WATCH, self.beat)
        self.network.send(self, self.coordinator, self.coordinator.show, self)

    def see(self, version: int, view: Coordinator) -> None:
        if version > self.version:
            self.version, self.view = version, view
            self.happen(c.Saw(view))

    def happen(self, event: c.Event) -> None:
        for action in machine.apply(self.client, event, self.loop.now):
            self._do(action)
        due = machine.next_tick(self.client, self.loop.now + 1)
        if self.alarm <= self.loop.now or due < self.alarm:
            self.alarm = due
            self.after((due - self.loop.now) * self.rate, self._ring, due)

    def _ring(self, due: int) -> None:
        if due == self.alarm:
            self.happen(c.Tick())

    def _do(self, action: c.Effect) -> None:
        match action:
            case c.Submit(message):
                self.unanswered.append(message)
                self._send(message, TRIES)
            case c.Load():
                self._load(action)
            case c.Learn():
                self._learn(action)
            case c.Train(epoch, height, step, share):
                result = commitment_hash(step, share, self.id)
                took = total(share) * self.sample_time
                self.after(took, self._trained, (epoch, height), result)
            case c.Tell(result):
                roster = [one.id for one in self.view.epoch.clients] if self.view else []
                self.gossip((result.epoch, result.height), result.commitment, roster)
            case c.Fetch(result):
                self.happen(c.Arrived(result))  # in these worlds bytes travel with their offer
            case c.Ask(epoch, height, _, shares):
                self._ask_all((epoch, height), tuple(shares))
            case c.Upload(epoch, _, model_hash):
                took = self.loop.random.uniform(100, 3000)
                self.after(took, self._uploaded, epoch, model_hash)
            case c.Abandon(epoch, height):
                self.abandoned.add((epoch, height))
            case c.Stop(epoch):
                self.stopped = epoch

    # The coordinator.

    def _send(self, message: m.AnyEvent, tries: int) -> None:
        if tries and any(one is message for one in self.unanswered):
            self.submit(message)
            self.after(RESEND, self._send, message, tries - 1)

    def answered(self, message: m.AnyEvent, refused: m.Refused | None = None) -> None:
        known = len(self.unanswered)
        self.unanswered = [one for one in self.unanswered if one is not message]
        if refused is not None and len(self.unanswered) < known:
            self.happen(c.WasRefused(message, refused))

    # The model.

    def _load(self, load: c.Load) -> None:
        if load.checkpoint.source is Source.P2P:
            self.wanted = (load.epoch, load.model_hash, TRIES)
            self._seek(load.holders)
            return
        stored = self.audit.stored.get(load.checkpoint.location)
        from_store = load.checkpoint.source is Source.Stored and stored is not None
        model = stored if from_store and stored else ToyModel(GENESIS, 0)
        self.after(self.loop.random.uniform(50, 400), self._have, load.epoch, model)

    def _seek(self, holders: tuple[bytes, ...]) -> None:
        """Ask one holder after the other."""
        if self.wanted is None:
            return
        epoch, name, tries = self.wanted
        if name in self.history:
            self._have(epoch, self.history[name])
            return
        others = [h for h in holders if h != self.id]
        if not tries or not others:
            self.wanted = None
            self.happen(c.NotLoaded(epoch))
            return
        self.wanted = (epoch, name, tries - 1)
        peer = self.peers.get(self.loop.random.choice(others))
        if peer is not None:
            self.network.send(self, peer, peer.asked, self, "model", name)
        self.after(RESEND, self._seek, holders)

    def given_model(self, name: bytes, model: ToyModel) -> None:
        if self.wanted is not None and self.wanted[1] == name == model.hash:
            self._have(self.wanted[0], model)

    def _have(self, epoch: int, model: ToyModel) -> None:
        self.wanted = None
        if epoch > self.stopped and self.client.epoch == epoch:
            self._stand(Standing(epoch, 0, model))
            self.happen(c.Loaded(epoch, model.hash))

    def _learn(self, action: c.Learn) -> None:
        assert self.standing is not None
        model = self.standing.model
        samples = model.samples
        shares = self.client.ledgers[action.height - 1 - self._delay()].shares
        for result in action.results:
            for span in shares[result.sender]:
                samples |= (1 << span.stop) - (1 << span.start)
        name = learn(model.hash, [result.commitment for result in action.results])
        self._stand(Standing(action.epoch, action.height, ToyModel(name, samples)))
        self.after(5, self._learnt, action, name)

    def _delay(self) -> int:
        return self.view.run.config.delay if self.view else 0

    def _learnt(self, action: c.Learn, name: bytes) -> None:
        self.happen(c.Learnt(action.epoch, action.height, name))

    # Results.

    def _trained(self, key: tuple[int, int], commitment: bytes) -> None:
        if key[0] > self.stopped and key not in self.abandoned:
            self.happen(c.Trained(self._result(key, self.id, commitment), self.speed()))

    def _result(self, key: tuple[int, int], sender: bytes, commitment: bytes) -> Result:
        return Result(*key, sender, commitment, commitment, 1)

    def hear(self, key: tuple[int, int], trainer: bytes, commitment: bytes) -> None:
        self.results.setdefault(key, {}).setdefault(trainer, commitment)
        self.payloads.add(commitment)
        if trainer != self.id:
            self.happen(c.Offered(self._result(key, trainer, commitment)))

    def _ask_all(self, key: tuple[int, int], senders: tuple[bytes, ...]) -> None:
        for peer in self.peers.values():
            for sender in senders:
                if peer is not self:
                    self.network.send(self, peer, peer.asked_result, self, key, sender)

    # The checkpoint.

    def _uploaded(self, epoch: int, model_hash: bytes) -> None:
        model = self.history.get(model_hash)
        root = self.view.run.model.checkpoint if self.view else ""
        if epoch > self.stopped and model is not None and root:
            location = f"{root}/{epoch}-{self.id.hex()[:8]}"
            self.audit.tell(ModelStored(location, model.hash, f"{model.samples:x}"))
            self.happen(c.Uploaded(epoch, location))
