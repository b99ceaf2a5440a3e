"""A client of a run: what to do next, given what it has seen. Pure; the shell carries it out.

The rules of this file:

- The client follows the states it is shown. In Warmup it loads the model and says so. In a round
  it first learns what the witnesses of the round before decided, then trains its share, tells its
  peers, and, when elected, attests what it received. In Cooldown, when elected, it stores the
  model.
- Results of round h are learnt before round h + delay + 1 trains, by everyone in the same order. A
  result that the witnesses saw and that is not here is asked for; nothing goes on without it.
- What others say is taken only if it fits the round: a member who has that work, once.
- A client that missed more than the state still tells, or whose model is not the one a quorum
  agreed on, leaves the epoch and comes back for the next one with a fresh copy. It never goes on
  with a wrong model, and never exits.
- `apply(event, now)` gives the actions in the order in which they must be begun.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import Share
from folkmoot.core.coordinator.client.ledger import Ledger, Result, Verdict, attest
from folkmoot.core.coordinator.client.messages import (
    Abandon,
    Action,
    Arrived,
    Ask,
    Event,
    Fetch,
    Learn,
    Learnt,
    Load,
    Loaded,
    NotLoaded,
    NotTrained,
    Offered,
    Saw,
    Stop,
    Submit,
    Tell,
    Train,
    Trained,
    Upload,
    Uploaded,
    WasRefused,
)
from folkmoot.core.coordinator.committee import is_checkpointer
from folkmoot.core.coordinator.receive import IN_EPOCH, IN_ROUND
from folkmoot.core.coordinator.state import STORED_ROUNDS, Coordinator, Phase, Source

# A sign of life this many times in the time after which silence counts as gone.
SIGNS_PER_TIMEOUT = 4
# How long to wait for an answer before asking the peers again, in milliseconds.
ASK_AGAIN = 2000
# How often to ask for a result of which nobody may know: witnesses that lie, or a sender that told
# each of them something else, make one that has no quorum. If it does exist, our model will differ
# from the agreed one, and we come back with a fresh copy.
ASK_TRIES = 3
# Results of a round that we have not seen begin are kept for it, up to this many.
EARLY_RESULTS = 4096
# How long to stay away after the model could not be loaded, in milliseconds; doubled each time.
AWAY, LONGEST_AWAY = 1000, 60_000


class Doing(StrEnum):
    """How far the client is with the model of the present epoch."""

    Nothing = "Nothing"
    Loading = "Loading"
    Learning = "Learning"
    Prepared = "Prepared"  # the model is as the present round wants it
    Lost = "Lost"  # cannot follow this epoch any more


class ClientMachine:
    """One client's view of the run, and what it has done about it."""

    def __init__(self, identity: bytes, run_id: str, address: bytes = b"") -> None:
        self.id = identity
        self.run_id = run_id
        self.address = address
        self.state: Coordinator | None = None
        self.model_hash = b""  # of the model in memory
        self.speed = 0
        self.metadata = m.WitnessMetadata()
        self._waiting = False  # whether the run knows that we want to be in the next epoch
        self._not_loaded = 0  # how often in a row
        self._join_after = 0
        self._next_sign = 0
        self._begin(-1)

    def _begin(self, epoch: int) -> None:
        """Forget the last epoch."""
        self.epoch = epoch
        self.doing = Doing.Nothing
        self.prepared = -1  # the round for which the model is prepared, or being prepared
        self._left = False
        self.training: int | None = None  # the round whose share is being trained
        self.ledgers: dict[int, Ledger] = {}
        self._early: list[Result] = []
        self._ask_after = 0
        self._asked: dict[int, int] = {}  # how often, by round
        self._begun: set[tuple[str, int]] = set()  # what was begun once and must not be again

    def apply(self, event: Event, now: int) -> list[Action]:
        """Take one event; give what to do."""
        actions = list(self._note(event, now))
        if self.state is not None:
            actions += self._follow(self.state, now)
        return actions

    def next_alarm(self, now: int) -> int:
        """When to raise an `Alarm` if nothing happens before."""
        later = [at for at in (self._ask_after, self._join_after) if at > now]
        return max(min([self._next_sign, *later]), now)

    # What an event changes.

    def _note(self, event: Event, now: int) -> Iterator[Action]:
        match event:
            case Saw(state):
                yield from self._saw(state)
            case Loaded(epoch, model_hash) if epoch == self.epoch:
                self.model_hash = model_hash
                self.doing = Doing.Prepared
                self._not_loaded = 0
            case NotLoaded(epoch) if epoch == self.epoch:
                self.doing = Doing.Lost
                self._join_after = now + min(AWAY << self._not_loaded, LONGEST_AWAY)
                self._not_loaded = min(self._not_loaded + 1, 16)
            case NotTrained(epoch, height) if (epoch, height) == (self.epoch, self.training):
                self.training = None
            case Trained(result, speed, metadata):
                self.speed, self.metadata = speed, metadata
                if (result.epoch, result.height) == (self.epoch, self.training):
                    self.training = None
                if self._arrived(result) and not self._left:
                    yield Tell(result)
            case Offered(result):
                yield from self._offered(result)
            case Arrived(result):
                self._arrived(result)
            case Learnt(epoch, height, model_hash) if (epoch, height) == (
                self.epoch,
                self.prepared,
            ):
                self.model_hash = model_hash
                self.doing = Doing.Prepared
            case Uploaded(epoch, location) if epoch == self.epoch:
                done = m.OpportunisticCooldown(self.id, epoch, location, self.model_hash)
                yield Submit(done)
            case WasRefused(_, m.Refused(code)) if code == m.Reason.NotAMember.name:
                self._waiting = False

    def _saw(self, state: Coordinator) -> Iterator[Action]:
        before, self.state = self.state, state
        left_cooldown = (
            before is not None
            and before.phase is Phase.Cooldown
            and state.phase is not Phase.Cooldown
        )
        new_epoch = state.phase in IN_EPOCH and state.epoch_number != self.epoch
        if (new_epoch or left_cooldown or not self._member(state)) and self.epoch >= 0:
            yield Stop(self.epoch)
            self._begin(-1)
        if new_epoch and self._member(state):
            self._begin(state.epoch_number)
        # Members of an epoch wait for the next one by themselves; others must join.
        if before is not None and (self._member(before) or self._member(state)):
            self._waiting = state.phase not in IN_EPOCH

    def _offered(self, result: Result) -> Iterator[Action]:
        ledger = self._ledger(result)
        newest = max(self.ledgers, default=-1)
        if ledger is not None:
            if ledger.offer(result):
                yield Fetch(result)
        elif result.epoch == self.epoch and newest < result.height <= newest + STORED_ROUNDS:
            self._early = [*self._early[1 - EARLY_RESULTS :], result]

    def _ledger(self, result: Result) -> Ledger | None:
        if result.epoch != self.epoch:
            return None
        return self.ledgers.get(result.height)

    def _arrived(self, result: Result) -> bool:
        ledger = self._ledger(result)
        if ledger is None or result.sender not in ledger.shares:
            return False
        ledger.arrived(result)
        return True

    def work(self, result: Result) -> tuple[int, Share] | None:
        """The step and the samples that a result must stand for; None when nobody awaits it."""
        ledger = self._ledger(result)
        share = ledger.shares.get(result.sender) if ledger else None
        return (ledger.step, share) if ledger and share else None

    def attested(self, result: Result) -> bool:
        """Whether a witness saw this very result: what others say in its name is not fetched."""
        ledger = self._ledger(result)
        by = self.state.round_at(result.height + self._delay) if self.state else None
        return bool(self.state and ledger and by and ledger.seen(result.commitment, self.state, by))

    def holds(self, epoch: int, height: int, senders: Iterable[bytes]) -> tuple[Result, ...]:
        """The results of these senders whose bytes are here."""
        ledger = self.ledgers.get(height) if epoch == self.epoch else None
        if ledger is None:
            return ()
        known = (ledger.own(sender).values() for sender in senders)
        return tuple(r for offers in known for r in offers if r.commitment in ledger.sound)

    @property
    def _delay(self) -> int:
        return self.state.run.config.delay if self.state else 0

    # What there is to do.

    def _follow(self, state: Coordinator, now: int) -> Iterator[Action]:
        if self.epoch < 0 and now >= self._join_after:
            yield from self._wait(state)
        yield from self._sign(state, now)
        if self.epoch >= 0 and not self._left:
            yield from self._epoch(state, now)

    def _wait(self, state: Coordinator) -> Iterator[Action]:
        """Outside of an epoch: be known to the run."""
        over = state.phase is Phase.Finished
        if not over and not self._waiting and not self._member(state):
            self._waiting = True
            yield Submit(m.Join(self.id, self.run_id, self.model_hash, self.address))

    def _sign(self, state: Coordinator, now: int) -> Iterator[Action]:
        judged = state.epoch.judged
        accused: tuple[bytes, ...] = ()
        if judged and self.epoch >= 0 and state.phase in IN_ROUND:
            clients = [state.epoch.clients[place] for place in judged.unhealthy]
            accused = tuple(c.id for c in clients if not c.left and c.id != self.id)
        if accused and self._once("accuse", judged.height if judged else 0):
            # Apart from the sign of life: an accusation that comes too late is refused whole.
            yield Submit(m.HealthCheck(self.id, accused, self.speed))
        if now >= self._next_sign:
            every = round(state.run.config.health_check_timeout * 1000 / SIGNS_PER_TIMEOUT)
            self._next_sign = now + every
            yield Submit(m.HealthCheck(self.id, (), self.speed))

    def _epoch(self, state: Coordinator, now: int) -> Iterator[Action]:
        match state.phase:
            case Phase.Warmup:
                yield from self._warmup(state)
            case Phase.RoundTrain | Phase.RoundWitness:
                yield from self._round(state, now)
            case Phase.Cooldown:
                yield from self._cooldown(state)

    def _warmup(self, state: Coordinator) -> Iterator[Action]:
        yield from self._load(state)
        if self.doing is Doing.Lost:
            yield from self._leave()
        if self.doing is Doing.Prepared and self._once("ready", 0):
            yield Submit(m.Ready(self.id, self.epoch))

    def _load(self, state: Coordinator) -> Iterator[Action]:
        rounds = state.epoch.rounds
        if self.doing in (Doing.Nothing, Doing.Loading) and rounds and rounds[0].height > 0:
            self.doing = Doing.Lost  # too late: what this epoch learnt is not told any more
        elif self.doing is Doing.Nothing:
            yield from self._load_first(state)

    def _load_first(self, state: Coordinator) -> Iterator[Action]:
        """Load the model that the epoch began with."""
        moved_on = state.epoch.agreed_height is not None  # then the agreed hash is a newer model's
        if moved_on and state.checkpoint.source is Source.P2P:
            self.doing = Doing.Lost  # nothing tells any more which model its peers began with
            return
        self.doing = Doing.Loading
        first = b"" if moved_on else state.model_hash
        holders = tuple(c.id for c in state.epoch.clients if first and c.model_hash == first)
        yield Load(self.epoch, state.checkpoint, first, holders)

    def _round(self, state: Coordinator, now: int) -> Iterator[Action]:
        yield from self._load(state)
        yield from self._keep_ledgers(state)
        current = state.round
        if self.training is not None and current.height > self.training + state.run.config.delay:
            yield Abandon(self.epoch, self.training)
            self.training = None
        yield from self._learn(state, now)
        if self.doing is Doing.Lost:
            yield from self._leave()
        elif self.doing is Doing.Prepared and self.prepared == current.height:
            yield from self._train(state)
            yield from self._attest(state)

    def _leave(self) -> Iterator[Action]:
        self._left = True
        yield Stop(self.epoch)
        yield Submit(m.Withdraw(self.id))

    def _keep_ledgers(self, state: Coordinator) -> Iterator[Action]:
        """One ledger for every round that the state still tells of."""
        stored = {round_.height: round_ for round_ in state.epoch.rounds}
        self.ledgers = {
            height: self.ledgers.get(height) or Ledger(state, round_)
            for height, round_ in stored.items()
        }
        early, self._early = self._early, []
        for result in early:
            yield from self._offered(result)

    def _learn(self, state: Coordinator, now: int) -> Iterator[Action]:
        """Bring the model to where the present round begins, one round at a time."""
        while self.doing is Doing.Prepared and self.training is None:
            if self.prepared == state.epoch.agreed_height and self.model_hash != state.model_hash:
                self.doing = Doing.Lost
            if self.doing is Doing.Lost or self.prepared == state.round.height:
                return
            height = self.prepared + 1
            work = height - 1 - state.run.config.delay
            if work >= 0 and (work not in self.ledgers or state.round_at(height - 1) is None):
                self.doing = Doing.Lost  # the state no longer tells what we missed
                return
            verdict = self._verdict(state, height - 1, work)
            wanted = verdict.missing
            if self._asked.get(height, 0) < ASK_TRIES:
                wanted += verdict.unheard
            if wanted:
                if now >= self._ask_after:
                    self._ask_after = now + ASK_AGAIN
                    self._asked[height] = self._asked.get(height, 0) + 1
                    yield Ask(self.epoch, work, wanted)
                return
            self.prepared = height
            if verdict.learn:
                self.doing = Doing.Learning
                yield Learn(self.epoch, height, self.ledgers[work].step, verdict.learn)

    def _verdict(self, state: Coordinator, by: int, work: int) -> Verdict:
        round_ = state.round_at(by)
        if work < 0 or round_ is None:
            return Verdict()
        return self.ledgers[work].verdict(state, round_)

    def _train(self, state: Coordinator) -> Iterator[Action]:
        current = state.round
        share = self.ledgers[current.height].shares.get(self.id)
        in_time = state.phase is Phase.RoundTrain or state.run.config.delay > 0
        if share and in_time and self.training is None and self._once("train", current.height):
            self.training = current.height
            yield Train(self.epoch, current.height, current.step, share)

    def _attest(self, state: Coordinator) -> Iterator[Action]:
        """As a witness: attest once everything is here, or when training time is over."""
        current = state.round
        place = state.find(self.id)
        index = None if place is None else state.index(current, place)
        if index is None or ("witness", current.height) in self._begun:
            return
        ledger = self.ledgers.get(current.height - state.run.config.delay)
        own = self.ledgers[current.height]
        trained = self.id not in own.shares or self.id in own.first
        ready = trained and (ledger is None or ledger.complete)
        if not ready and state.phase is Phase.RoundTrain:
            return
        proof = state.committee(current).get_witness(index)
        if not proof.witness or not self._once("witness", current.height):
            return
        shape = state.bloom_shape(current, index)
        participants, broadcasts, root = attest(ledger.first if ledger else {}, shape)
        yield Submit(
            m.OpportunisticWitness(
                self.id,
                self.epoch,
                current.height,
                proof,
                participants,
                broadcasts,
                root,
                self.model_hash,
                self.metadata,
            )
        )

    def _cooldown(self, state: Coordinator) -> Iterator[Action]:
        election, place = state.epoch.cooldown, state.find(self.id)
        if election is None or place is None or self.model_hash != state.model_hash:
            return
        index = state.index(election, place)
        if (
            index is not None
            and state.run.model.checkpoint
            and self._once("upload", 0)
            and is_checkpointer(index, state.roster_size(election), election.seed)
        ):
            yield Upload(self.epoch, state.progress.step, self.model_hash)

    def _member(self, state: Coordinator) -> bool:
        if state.phase not in IN_EPOCH:
            return False
        place = state.find(self.id)
        return place is not None and not state.epoch.clients[place].left

    def _once(self, what: str, height: int) -> bool:
        """True the first time in an epoch."""
        key = (what, height)
        first = key not in self._begun
        self._begun.add(key)
        return first
