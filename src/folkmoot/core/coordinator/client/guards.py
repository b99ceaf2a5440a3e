"""What the guards of a client's table ask about a client, the run and what just happened."""

from functools import cached_property

from folkmoot.core.coordinator.absence import storing
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Result, RoundVerdict
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.coordinator.receive import IN_ROUND, member
from folkmoot.core.coordinator.state import CheckpointSource, Coordinator, Phase

# How often to ask for a result of which nobody may know: witnesses that lie, or a sender that told
# each of them something else, make one that has no quorum. If it does exist, our model will differ
# from the agreed one, and we come back with a fresh copy.
ASK_TRIES = 3


class ClientGuards:
    """A client at a time, and what just happened to it: what the guards of the table ask."""

    def __init__(self, client: ClientState, state: Coordinator, event: c.Event, now: int) -> None:
        self.client, self.state, self.event, self.now = client, state, event, now

    # The epoch.

    @cached_property
    def member(self) -> bool:
        return member(self.state, self.client.id) is not None

    def outside(self) -> bool:
        """Whether the epoch that the client is in is over for it."""
        return not self.member or self.state.epoch_number != self.client.epoch

    def called(self) -> bool:
        return self.member and self.state.phase is not Phase.Cooldown

    @property
    def in_round(self) -> bool:
        return self.state.phase in IN_ROUND

    @property
    def _moved_on(self) -> bool:
        """Whether the agreed hash is of a newer model than the one that the epoch began with."""
        return self.state.epoch.agreed_height is not None

    def too_late_to_catch_up(self) -> bool:
        """Whether the state no longer tells what the first rounds of the epoch taught."""
        return self.in_round and self.state.epoch.rounds[0].height > 0

    def too_late_to_load(self) -> bool:
        """Also when nothing tells any more which model the peers began with."""
        newer = self.state.epoch.saved and bool(self.state.checkpoint.location)
        from_peers = self.state.checkpoint.source is CheckpointSource.P2P
        unknown = self._moved_on and (newer or from_peers)
        return self.called() and (unknown or self.too_late_to_catch_up())

    @property
    def load(self) -> c.Load:
        """Load the model that the epoch began with."""
        agreed = b"" if self._moved_on else self.state.model_hash
        clients = self.state.epoch.clients
        holders = tuple(x.id for x in clients if agreed and x.model_hash == agreed)
        return c.Load(self.client.epoch, self.state.checkpoint, agreed, holders)

    @property
    def newcomers(self) -> bool:
        """Whether others need a copy of the model that we loaded, and have it from peers."""
        if self.state.checkpoint.source is not CheckpointSource.P2P:
            return False
        held, me = self.client.model_hash, self.client.id
        return any(x.model_hash != held and x.id != me for x in self.state.epoch.clients)

    def elected_to_store(self) -> bool:
        if self.state.phase is not Phase.Cooldown:
            return False
        if not self.state.run.model.checkpoint or self.client.model_hash != self.state.model_hash:
            return False
        return self.state.find(self.client.id) in storing(self.state)

    # The round.

    @property
    def work(self) -> int:
        """The round whose results are learnt before the next round."""
        return self.client.prepared - self.state.run.config.delay

    @property
    def behind(self) -> bool:
        return self.in_round and self.client.prepared < self.state.round.height

    def differs(self) -> bool:
        """Whether our model is not the one that a quorum agreed on."""
        agreed = self.in_round and self.client.prepared == self.state.epoch.agreed_height
        return agreed and self.client.model_hash != self.state.model_hash

    def may_go_on(self) -> bool:
        """Whether a round began, and whatever is to be learnt for it is here."""
        return self.behind and not self.wanted

    def may_learn(self) -> bool:
        return self.may_go_on() and bool(self.verdict.learn)

    def missed(self) -> bool:
        """Whether the state no longer tells what the next round needs."""
        if not self.behind or self.work < 0:
            return False
        told = self.state.round_at(self.client.prepared)
        return told is None or self.work not in self.client.ledgers

    @cached_property
    def verdict(self) -> RoundVerdict:
        by = self.state.round_at(self.client.prepared)
        if self.work < 0 or by is None:
            return RoundVerdict()
        return self.client.ledgers[self.work].verdict(self.state, by)

    @property
    def wanted(self) -> tuple[bytes, ...]:
        """Whose results must be here, or asked for once more, before the model goes on."""
        # There may yet be an answer about results of which we only know that they are.
        asking = self.client.asked < ASK_TRIES or self.now < self.client.ask_after
        return self.verdict.missing + (self.verdict.unheard if asking else ())

    def to_train(self) -> bool:
        """Whether the present round has a share for us that can still be attested."""
        height = self.state.round.height if self.in_round else -1
        if not self.client.trained < height == self.client.prepared:
            return False
        in_time = self.state.phase is Phase.RoundTrain or self.state.run.config.delay > 0
        return in_time and self.client.id in self.client.ledgers[height].shares

    def too_late_to_train(self) -> bool:
        last = self.client.trained + self.state.run.config.delay
        return self.in_round and self.state.round.height > last

    # The event.

    def loaded(self) -> bool:
        return isinstance(self.event, c.Loaded) and self.event.epoch == self.client.epoch

    def not_loaded(self) -> bool:
        return isinstance(self.event, c.NotLoaded) and self.event.epoch == self.client.epoch

    def learnt(self) -> bool:
        return isinstance(self.event, c.Learnt) and self._of(self.event, self.client.prepared)

    def trained(self) -> bool:
        done = self.event.result if isinstance(self.event, c.Trained) else None
        return done is not None and self._of(done, self.client.trained)

    def not_trained(self) -> bool:
        return isinstance(self.event, c.NotTrained) and self._of(self.event, self.client.trained)

    def _of(self, event: c.RoundEvent | Result, height: int) -> bool:
        return (event.epoch, event.height) == (self.client.epoch, height)
