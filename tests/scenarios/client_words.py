"""The words of a client's transcripts: the client is `a`, and everything it says reaches the run.

> run delay=0 min_clients=2        a new run, as the coordinator's transcripts have it
> 0 sees                           at 0 s the client is shown the run
> 1 run join b                     the run hears this (in the words of its own transcripts), and
                                   the client is shown what it became; `unseen`: it is not
> 1 run witness b sees=a,b model=m (results of a round: `c:x` is another one of c)
> 2 loaded m       > 2 not_loaded
> 3 trained        > 3 not_trained     > 3 offered b     > 3 arrived b what=x round=0
> 3 unavailable b
> 3 heard b        > 3 hung_up b       > 3 audited passes=b,c fails=d
> 3 arrived b toward=all         its direction: where `all` go, `against` them, `nowhere`, or that
                                 of another's result of this round: `toward=c`
> 4 learnt m1      > 5 uploaded store/1      > 6 tick      > due 6
"""

from collections import deque
from hashlib import sha256
from typing import Any

from folkmoot.core import bloom
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.client import machine
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result, attest
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.coordinator.health import participant_item
from folkmoot.core.coordinator.state import CheckpointSource
from folkmoot.core.machine import Effect, Event
from folkmoot.simulate.run.directions import direction
from scenarios.coordinator_words import CoordinatorWords, identity, ids, model_hash, name, spans
from scenarios.transcript import Words

ME = identity("a")


class _Said(Event, frozen=True, tag=True):
    """Somebody tells the run something."""

    message: Any
    shown: bool = True


class _Round(Event, frozen=True, tag=True):
    """These clients are the witnesses of a round; then its time passes."""

    who: str
    model: str


class _Run(Effect, frozen=True, tag=True):
    """What became of the run."""

    what: str


class ClientWords(Words):
    machine = machine

    def create_run(self, **named: str) -> ClientState:
        self.run = CoordinatorWords()
        self.run.state = self.run.create_run(**named)
        return self.create_restart()

    def create_restart(self) -> ClientState:
        return ClientState(ME, "moot")

    def apply(self, event: Event, now: int, seed: int) -> tuple[Effect, ...]:
        """The client's effects; what it tells the run, the run hears, and shows what it became."""
        effects: list[Effect] = []
        coming = deque([event])
        while coming:
            next_ = coming.popleft()
            if isinstance(next_, _Round):
                self._pass_round(next_, now, seed)
                continue
            if isinstance(next_, _Said):
                coming += self._hear(next_, now, seed, effects)
                continue
            for effect in machine.apply(self.state, next_, now):
                effects.append(effect)
                if isinstance(effect, c.Submit):
                    coming.append(_Said(effect.message))
        return tuple(effects)

    def _hear(self, said: _Said, now: int, seed: int, effects: list[Effect]) -> list[Event]:
        before = self.run.state
        events: list[Event] = []
        for effect in self.run.apply(said.message, now, seed):
            if isinstance(effect, m.Refused):
                effects.append(_Run(f"refuses: {effect.code}"))
                events.append(c.WasRefused(said.message, effect))
            if isinstance(effect, m.StateChanged):
                effects.append(_Run(f"is in {effect.after}"))
        if said.shown and self.run.state is not before:
            events.append(self.say_sees())
        return events

    def _pass_round(self, passing: _Round, now: int, seed: int) -> None:
        for who in passing.who.split(","):
            witness = self._witness(who, passing.who, passing.model)
            assert not self.run.machine.apply(self.run.state, witness, now, seed).refused
            self.run.apply(witness, now, seed)
        self.run.apply(
            m.Tick(), now + round(self.run.state.run.config.round_witness_time * 1000), seed
        )

    # What happens to the client.

    def say_sees(self) -> c.Saw:
        return c.Saw(self.run.state)

    def say_run(self, verb: str, *who: str, **named: str) -> _Said:
        return _Said(self._message(verb, *who, **named))

    def say_unseen(self, verb: str, *who: str, **named: str) -> _Said:
        return _Said(self._message(verb, *who, **named), shown=False)

    def say_round(self, who: str, model: str = "m") -> _Round:
        return _Round(who, model)

    def _message(self, verb: str, *who: str, **named: str) -> Any:
        if verb == "witness":
            return self._witness(*who, **named)
        return getattr(self.run, f"say_{verb}")(*who, **named)

    def _witness(
        self, who: str, sees: str = "", model: str = "m", screens: str = ""
    ) -> m.OpportunisticWitness:
        run = self.run.state
        index = run.index(run.round, run.find(identity(who)))
        height = run.round.height - run.run.config.delay
        pairs = [pair.partition(":") for pair in sees.split(",") if pair]
        first = {identity(x): _commitment(x, height, what) for x, _, what in pairs}
        return m.OpportunisticWitness(
            identity(who),
            run.epoch_number,
            run.round.height,
            run.committee(run.round).get_witness(index),
            *attest(first, run.bloom_shape(run.round, index)),
            self._named(model),
            screened=self.run.places(screens),
        )

    def _named(self, label: str) -> bytes:
        self.run.hashes[model_hash(label)] = label
        return model_hash(label)

    def say_loaded(self, model: str) -> c.Loaded:
        return c.Loaded(self.state.epoch, self._named(model))

    def say_not_loaded(self) -> c.NotLoaded:
        return c.NotLoaded(self.state.epoch)

    def say_trained(self, what: str = "", round: str = "", toward: str = "") -> c.Trained:
        result = self._result("a", what, round or str(self.state.trained))
        return c.Trained(result, 100, sketch=self._sketch(result, toward))

    def say_not_trained(self) -> c.NotTrained:
        return c.NotTrained(self.state.epoch, self.state.trained)

    def say_offered(self, who: str, what: str = "", round: str = "") -> c.Offered:
        return c.Offered(self._result(who, what, round))

    def say_arrived(self, who: str, what: str = "", round: str = "", toward: str = "") -> c.Arrived:
        result = self._result(who, what, round)
        return c.Arrived(result, self._sketch(result, toward))

    def say_unavailable(self, who: str, what: str = "") -> c.Unavailable:
        return c.Unavailable(self._result(who, what, ""))

    def _sketch(self, result: Result, toward: str) -> bytes:
        if not toward:
            return b""
        if toward in ("all", "against", "nowhere"):
            return direction(toward, result)
        return direction("all", self._result(toward, "", str(result.height)))

    def _result(self, who: str, what: str, round_: str) -> Result:
        height = int(round_ or self.run.state.round.height)
        commitment = _commitment(who, height, what)
        epoch = self.run.state.epoch_number
        return Result(epoch, height, identity(who), commitment, commitment, 1)

    def say_audited(self, passes: str = "", fails: str = "") -> c.Audited:
        return c.Audited(self.state.epoch, self.state.auditing, ids(passes), ids(fails))

    def say_heard(self, who: str) -> c.Heard:
        return c.Heard(identity(who))

    def say_hung_up(self, who: str) -> c.HungUp:
        return c.HungUp((identity(who),))

    def say_learnt(self, model: str) -> c.Learnt:
        return c.Learnt(self.state.epoch, self.state.prepared, self._named(model))

    def say_uploaded(self, where: str, model: str = "") -> c.Uploaded:
        stored = model_hash(model) or self.state.model_hash
        return c.Uploaded(self.state.epoch, where, stored)

    # What it does.

    def describe(self, effect: Effect) -> str:
        match effect:
            case _Run(what):
                return f"the run {what}"
            case c.Submit(message):
                return self._told(message)
            case c.Connect(peers, _):
                return f"connects to {', '.join(name(x) for x, _ in peers) or 'nobody'}"
            case c.Load():
                return self._load(effect)
            case c.ShareModel(_, hash_):
                return f"lets newcomers have {self.run.hashes[hash_]}"
            case c.UnshareModel():
                return "lets nobody have its model any more"
            case c.Learn(_, height, step, results, samples):
                behind = " and ".join(map(str, samples))
                return (
                    f"learns {_results(results)}, step {step}, {behind} samples, for round {height}"
                )
            case c.Train(_, height, _, share):
                return f"trains samples {spans(share)} in round {height}"
            case c.Audit(_, _, trials):
                said = (
                    f"{name(t.result.sender)} on {spans(t.samples)} beside"
                    f" {_names(r.sender for r in t.others)}"
                    for t in trials
                )
                return f"audits of round {trials[0].result.height} {'; '.join(said)}"
            case c.Abandon(_, height):
                return f"gives up its share of round {height}"
            case c.Evaluate(_, _, step):
                return f"scores the model on held-out text, step {step}"
            case c.Tell(result):
                return f"tells its peers of its result in round {result.height}"
            case c.Fetch(result):
                return f"fetches {_results([result])}"
            case c.Ask(_, height, _, shares):
                return f"asks its peers for results of round {height} by {_names(shares)}"
            case c.Probe(peers):
                return f"asks for a sign of {_names(peers)}"
            case c.Forget(_, height):
                return f"forgets results before round {height}"
            case c.Upload(_, step, hash_):
                return f"stores {self.run.hashes[hash_]} as step {step}"
            case c.Save(_, step, hash_):
                return f"stores a copy of {self.run.hashes[hash_]} as step {step}"
            case c.StopSaving():
                return "stores no copy any more"
            case c.Stop(epoch):
                return f"stops all work of epoch {epoch}"
        return super().describe(effect)

    def _told(self, message: m.AnyEvent) -> str:
        match message:
            case m.Join(_, _, hash_):
                return f"joins{f', holding {self.run.hashes[hash_]}' if hash_ else ''}"
            case m.HealthCheck(_, accused):
                return f"accuses {_names(accused)}" if accused else "shows that it lives"
            case m.Ready():
                return "is ready"
            case m.CallGone(_, _, _, gone, false):
                said = f"calls {_names(gone)} gone" if gone else "calls nobody gone any more"
                return f"says that {_names(false)} told of two results" if false else said
            case m.OpportunisticWitness(_, _, height, proof, participants):
                shape = self.run.state.bloom_shape(self.run.state.round, proof.index)
                here = [x.id for x in self.run.state.epoch.clients]
                saw = bloom.holds(participants, [participant_item(x) for x in here], shape)
                seen = _names(x for x, held in zip(here, saw, strict=True) if held)
                model = self.run.hashes[message.model_hash]
                said = f"attests in round {height} results of {seen or 'nobody'}, and model {model}"
                return said + self._judgements(message)
            case m.OpportunisticCooldown(_, _, location):
                return f"says that the model is stored at {location}"
            case m.Withdraw():
                return "withdraws"
        raise TypeError(f"no words for {message}")

    def _judgements(self, message: m.OpportunisticWitness) -> str:
        clients = self.run.state.epoch.clients
        lists = {"screens": message.screened, "passes": message.passed, "fails": message.failed}
        return "".join(
            f"; {verb} {_names(clients[place].id for place in places)}"
            for verb, places in lists.items()
            if places
        )

    def _load(self, load: c.Load) -> str:
        match load.checkpoint.source:
            case CheckpointSource.Ephemeral:
                return "makes the model from the run's seed"
            case CheckpointSource.Stored:
                return f"loads the model at {load.checkpoint.location}"
        return f"loads {self.run.hashes[load.model_hash]} from {_names(load.holders)}"


def _commitment(who: str, height: int, what: str) -> bytes:
    return sha256(f"{who} {height} {what}".encode()).digest()


def _names(ids: Any) -> str:
    return ", ".join(name(x) for x in ids)


def _results(results: Any) -> str:
    """Whose they are, and of which round; another one than the sender's usual is marked."""
    usual = [r.commitment == _commitment(name(r.sender), r.height, "") for r in results]
    made = [
        name(r.sender) + ("" if u else " (another)") for r, u in zip(results, usual, strict=True)
    ]
    return f"the results of {', '.join(made)} in round {results[0].height}"
