"""A client of a run: what to do next, given what it has seen. Pure; the shell carries it out.

The rules of this file:

- The client follows the states it is shown. In Warmup it loads the model and says so. In a round
  it first learns what the witnesses of the round before decided, then trains its share, tells its
  peers, audits what is its to audit, and, when elected, attests what it received. In Cooldown, when
  elected, it stores the model; in the midst of an epoch a copy of it, before it learns anything
  more.
- The table below is asked after every event, until none of its edges is due. Nothing else changes
  the phase. While the phase lasts, there are duties beside it: to join, to show signs of life, to
  attest, to ask for what did not come.
- Results of round h are learnt before round h + delay + 1 trains, by everyone in the same order. A
  result that the witnesses saw and that is not here is asked for; nothing goes on without it.
- A witness that waits for others asks whether they are there, and tells the run who does not
  answer (`waiting.py`). Nobody waits for those who left or will leave when the round ends, nor for
  one that tells of a result and does not give it out.
- What others say is taken only if it fits the round: a member who has that work, once.
- A client that missed more than the state still tells, or whose model is not the one a quorum
  agreed on, leaves the epoch and comes back for the next one with a fresh copy. It never goes on
  with a wrong model, and never exits.
- The model that an epoch began with is shared with those who come to it without one, for as long
  as they can still catch up.
"""

from collections.abc import Iterator

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.assignment import total
from folkmoot.core.coordinator.checkpoints import savers
from folkmoot.core.coordinator.client import auditing, waiting
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.guards import ClientGuards
from folkmoot.core.coordinator.client.ledger import Ledger, Result, attest, attested
from folkmoot.core.coordinator.client.state import ClientState, Phase
from folkmoot.core.coordinator.receive import IN_EPOCH, IN_ROUND, member
from folkmoot.core.coordinator.state import STORED_ROUNDS, Coordinator
from folkmoot.core.coordinator.state import Phase as RunPhase
from folkmoot.core.machine import Effect, StateChanged
from folkmoot.core.table import Edge, first

# A sign of life this many times in the time after which silence counts as gone.
SIGNS_PER_TIMEOUT = 4
# And no oftener than this, in milliseconds, whatever the run wants.
SHORTEST_SIGN = 50
# How long to wait for an answer before asking the peers again, in milliseconds.
ASK_AGAIN = 2000
# Results of a round that we have not seen begin are kept for it, up to this many.
EARLY_RESULTS = 4096
# How long to stay away after the model could not be loaded, in milliseconds; doubled each time.
AWAY, LONGEST_AWAY = 1000, 60_000
# How often a model is scored on held-out text, in steps: each time by another client.
EVALUATE_EVERY = 10


P, G = Phase, ClientGuards
TABLE: tuple[Edge[ClientGuards], ...] = (
    *(Edge(p, P.Away, "the epoch is over for it", G.outside) for p in P if p is not P.Away),
    Edge(
        P.Away,
        P.Lost,
        "in an epoch whose first model or rounds are no longer told",
        G.too_late_to_load,
    ),
    Edge(P.Away, P.Loading, "in an epoch", G.called),
    Edge(P.Loading, P.Ready, "the model is here", G.loaded),
    Edge(P.Loading, P.Lost, "nobody has the model", G.not_loaded),
    Edge(P.Loading, P.Lost, "the first rounds are no longer told", G.too_late_to_catch_up),
    Edge(P.Ready, P.Lost, "its model is not the agreed one", G.differs),
    Edge(P.Ready, P.Lost, "what it missed is no longer told", G.missed),
    Edge(
        P.Ready, P.Learning, "a round began, and the results to learn for it are here", G.may_learn
    ),
    Edge(P.Ready, P.Ready, "a round began, and there is nothing to learn for it", G.may_go_on),
    Edge(P.Ready, P.Training, "the round has a share for it", G.to_train),
    Edge(P.Ready, P.Storing, "Cooldown elected it to store the model", G.elected_to_store),
    Edge(P.Training, P.Ready, "its share is trained", G.trained),
    Edge(P.Training, P.Ready, "its share could not be trained", G.not_trained),
    Edge(P.Training, P.Ready, "nobody can attest its share any more", G.too_late_to_train),
    Edge(P.Learning, P.Ready, "the results are learnt", G.learnt),
)


def apply(client: ClientState, event: c.Event, now: int) -> list[Effect]:
    """Take one event; give what to do, in the order in which it must be begun."""
    effects = list(_note(client, event))
    if client.shown is None:
        return effects
    _turn_over(client, client.shown, now)
    guards = ClientGuards(client, client.shown, event, now)
    while edge := first(TABLE, client.phase, guards):
        before, client.phase = client.phase, Phase(edge.target)
        effects.append(StateChanged(before, client.phase, edge.when))
        effects += _enter(client, before, guards)
        # An event passes one edge; what follows from it by itself may pass more.
        guards = ClientGuards(client, client.shown, c.Tick(), now)
    effects += _speak(client, client.shown, now)
    if client.phase in (Phase.Ready, Phase.Training):
        effects += _follow(client, guards)
    effects += waiting.watch(client, client.shown, now)
    return effects


def next_tick(client: ClientState, now: int) -> int:
    """When to tick if nothing happens before."""
    later = [at for at in (client.ask_after, client.join_after) if at > now]
    looks = (*waiting.next_look(client, now), *auditing.next_look(client, now))
    return max(min([client.next_sign, *later, *looks]), now)


# What an event changes.


def _note(client: ClientState, event: c.Event) -> Iterator[Effect]:
    match event:
        case c.Saw(state):
            yield from _saw(client, state)
        case c.Trained(result, speed, metadata, sketch):
            client.speed, client.metadata = speed, metadata
            # What we told before we were started again stands: nobody may tell of two.
            if not client.told_another(result) and client.arrived(result, sketch):
                yield c.Tell(result)
                yield from _evaluate(client, result)
        case c.Offered(result):
            client.heard(result.sender)
            yield from _offered(client, result)
        case c.Arrived(result, sketch):
            client.heard(result.sender)
            client.arrived(result, sketch)
        case c.Unavailable(result):
            if ledger := client.ledger(result):
                ledger.cannot_be_had(result)
        case c.Audited(epoch, height, passed, failed):
            if (epoch, height) == (client.epoch, client.auditing):
                client.verdicts = (passed, failed)
        case c.Unreachable(peers):
            client.unreachable = peers[: m.UNREACHABLE_MAX]
        case c.Heard(peer):
            client.heard(peer)
            client.hung_up.discard(peer)
        case c.HungUp(peers) if client.shown is not None:
            members = (peer for peer in peers if client.shown.find(peer) is not None)
            client.hung_up.update(members)
        case c.Uploaded(epoch, location, model_hash) if epoch == client.epoch:
            done = m.OpportunisticCooldown(client.id, epoch, location, model_hash)
            yield c.Submit(done)
        case c.WasRefused(message, m.Refused(code)) if code == m.Reason.NotAMember.name:
            # No run refuses a Join for that; who does is asked again at the pace of signs of life.
            client.waiting &= isinstance(message, m.Join)


def _saw(client: ClientState, state: Coordinator) -> Iterator[Effect]:
    before, client.shown = client.shown, state
    # Members of an epoch wait for the next one by themselves; others, and who left it, must join.
    if before is not None and (_member(client, before) or _member(client, state)):
        client.waiting = state.phase not in IN_EPOCH and client.phase is not Phase.Lost
    if before is None or _turn(before) != _turn(state):
        yield from _turned(client, state)
    saving = state.epoch.saving
    if client.saving >= 0 and (saving is None or saving.election.height != client.saving):
        client.saving = -1
        yield c.StopSaving()
    if state.phase in IN_ROUND and client.epoch == state.epoch_number:
        yield from _keep_ledgers(client, state)


def _turned(client: ClientState, state: Coordinator) -> Iterator[Effect]:
    """Another round, epoch or roster: whom to know and what to keep."""
    clients = state.epoch.clients
    here = ((x.id, x.address) for x in clients if not x.left and x.id != client.id)
    yield c.Connect(tuple(here), len(clients))
    if not state.epoch.rounds:
        return
    oldest = state.epoch.rounds[0].height
    yield c.Forget(state.epoch_number, oldest)
    if oldest > 0:  # nobody can come to this epoch any more
        yield from _unshare(client)


def _keep_ledgers(client: ClientState, state: Coordinator) -> Iterator[Effect]:
    """One ledger for every round that the state still tells of."""
    if client.phase is Phase.Lost:
        return
    client.ledgers = {
        round_.height: client.ledgers.get(round_.height) or Ledger(state, round_)
        for round_ in state.epoch.rounds
    }
    early, client.early = client.early, []
    for result in early:
        yield from _offered(client, result)


def _offered(client: ClientState, result: Result) -> Iterator[Effect]:
    ledger = client.ledger(result)
    newest = max(client.ledgers, default=-1)
    if ledger is not None:
        if result.sender in ledger.shares and ledger.contradicts(result):
            client.equivocated.add(result.sender)
        if ledger.offer(result):
            yield c.Fetch(result, ledger.step, ledger.shares[result.sender])
    elif result.epoch == client.epoch and newest < result.height <= newest + STORED_ROUNDS:
        client.early = [*client.early[1 - EARLY_RESULTS :], result]


def _evaluate(client: ClientState, result: Result) -> Iterator[Effect]:
    """One client at a time is enough: the models are equal."""
    if (
        client.shown is None
        or client.phase is not Phase.Training
        or result.height != client.trained
    ):
        return
    turn, rest = divmod(client.ledgers[result.height].step, EVALUATE_EVERY)
    if rest == 0 and client.shown.find(client.id) == turn % len(client.shown.epoch.clients):
        yield c.Evaluate(client.epoch, result.height, turn * EVALUATE_EVERY)


def _member(client: ClientState, state: Coordinator) -> bool:
    return member(state, client.id) is not None


# What is done whatever the phase.


def _speak(client: ClientState, state: Coordinator, now: int) -> Iterator[Effect]:
    """Be known to the run, and show signs of life."""
    wanted = round(state.run.config.health_check_timeout * 1000 / SIGNS_PER_TIMEOUT)
    every = max(wanted, SHORTEST_SIGN)
    over = state.phase is RunPhase.Finished or _member(client, state)
    if client.phase is Phase.Away and now >= client.join_after and not (over or client.waiting):
        client.waiting = True
        # A sign of life as well: another one may overtake it, and would be a stranger's.
        client.next_sign = now + every
        yield c.Submit(m.Join(client.id, client.run_id, client.model_hash, client.address))
    yield from _accuse(client, state)
    if now >= client.next_sign:
        client.next_sign = now + every
        yield c.Submit(m.HealthCheck(client.id, (), client.speed, client.unreachable))


def _accuse(client: ClientState, state: Coordinator) -> Iterator[Effect]:
    """Apart from the sign of life: an accusation that comes too late is refused whole."""
    judged = state.epoch.judged
    if judged is None or client.phase is Phase.Away or state.phase not in IN_ROUND:
        return
    clients = [state.epoch.clients[place] for place in judged.unhealthy]
    accused = tuple(x.id for x in clients if not x.left and x.id != client.id)
    if accused and judged.height > client.accused:
        client.accused = judged.height
        yield c.Submit(m.HealthCheck(client.id, accused, client.speed))


# What passing an edge begins.


def _enter(client: ClientState, before: Phase, at: ClientGuards) -> Iterator[Effect]:
    match client.phase:
        case Phase.Away:
            if before is not Phase.Lost:
                yield from _stop(client)
            client.begin(-1)
        case Phase.Loading:
            client.begin(at.state.epoch_number)
            yield from _keep_ledgers(client, at.state)
            yield at.load
        case Phase.Ready:
            yield from _enter_ready(client, before, at)
        case Phase.Training:
            current = at.state.round
            client.trained = current.height
            share = client.ledgers[current.height].shares[client.id]
            yield c.Train(client.epoch, current.height, current.step, share)
        case Phase.Learning:
            # Before the next round is prepared for: `at.work` counts from there.
            ledger, results = client.ledgers[at.work], at.verdict.learn
            yield from _save(client, at.state)
            _prepare(client)
            samples = tuple(total(ledger.shares[result.sender]) for result in results)
            yield c.Learn(client.epoch, client.prepared, ledger.step, results, samples)
        case Phase.Storing:
            yield c.Upload(client.epoch, at.state.progress.step, client.model_hash)
        case Phase.Lost:
            yield from _leave(client, at)


def _enter_ready(client: ClientState, before: Phase, at: ClientGuards) -> Iterator[Effect]:
    if before is Phase.Ready:
        yield from _save(client, at.state)
        _prepare(client)
    if before is Phase.Training and not (at.trained() or at.not_trained()):
        yield c.Abandon(client.epoch, client.trained)
    if isinstance(at.event, c.Loaded | c.Learnt):
        client.model_hash = at.event.model_hash
    if before is Phase.Loading:
        client.not_loaded = 0
        if at.newcomers:
            client.sharing = True
            yield c.ShareModel(client.epoch, client.model_hash)
        if at.state.phase is RunPhase.Warmup:
            yield c.Submit(m.Ready(client.id, client.epoch))


def _save(client: ClientState, state: Coordinator) -> Iterator[Effect]:
    """Before the model goes on: have it stored as it is, if that is wanted of us."""
    saving = state.epoch.saving
    if saving is None or saving.election.height != client.prepared or client.saving >= 0:
        return
    if client.model_hash == saving.model_hash and state.find(client.id) in savers(state):
        client.saving = client.prepared
        yield c.Save(client.epoch, saving.progress.step, saving.model_hash)


def _prepare(client: ClientState) -> None:
    client.prepared, client.asked = client.prepared + 1, 0


def _leave(client: ClientState, at: ClientGuards) -> Iterator[Effect]:
    if isinstance(at.event, c.NotLoaded):
        client.join_after = at.now + min(AWAY << client.not_loaded, LONGEST_AWAY)
        client.not_loaded = min(client.not_loaded + 1, 16)
    client.epoch = at.state.epoch_number
    client.ledgers = {}
    yield from _stop(client)
    yield c.Submit(m.Withdraw(client.id))


def _stop(client: ClientState) -> Iterator[Effect]:
    yield from _unshare(client)
    yield c.Stop(client.epoch)


def _unshare(client: ClientState) -> Iterator[Effect]:
    if client.sharing:
        client.sharing = False
        yield c.UnshareModel()


# What is done with a model at hand.


def _follow(client: ClientState, at: ClientGuards) -> Iterator[Effect]:
    if at.state.phase not in IN_ROUND:
        return
    if client.prepared == at.state.round.height:
        yield from auditing.begin(client, at.state, at.now)
        yield from _attest(client, at.state, at.now)
    elif client.phase is Phase.Ready and at.now >= client.ask_after:
        ledger = client.ledgers[at.work]
        shares = {sender: ledger.shares[sender] for sender in at.wanted}
        by = at.state.round_at(client.prepared)
        assert by is not None  # else we would be lost
        client.ask_after = at.now + ASK_AGAIN
        client.asked += 1
        yield c.Ask(client.epoch, at.work, ledger.step, shares, attested(at.state, by))


def _attest(client: ClientState, state: Coordinator, now: int) -> Iterator[Effect]:
    """As a witness: attest once everything is here that will come, or when time is over."""
    current = state.round
    place = state.find(client.id)
    index = None if place is None else state.index(current, place)
    if index is None or client.attested == current.height:
        return
    ledger = client.ledgers.get(current.height - state.run.config.delay)
    if auditing.under_way(client, state, now):
        return
    if state.phase is RunPhase.RoundTrain and not _may_attest(client, state, ledger, now):
        return
    if ledger is not None and state.run.config.screening:
        _screen(client, ledger)
    proof = state.committee(current).get_witness(index)
    if not proof.witness:
        return
    client.attested = current.height
    waiting.note_pace(client, state, ledger, now)
    screened, first = client.screened, ledger.first if ledger else {}
    fine = {sender: name for sender, name in first.items() if sender not in screened}
    seen = attest(fine, state.bloom_shape(current, index))
    named = state.places(sender for sender in first if sender in screened)[: m.SCREENED_MAX]
    verdicts = auditing.verdicts(client, state)
    said = (proof, *seen, client.model_hash, client.metadata, named, *verdicts)
    yield c.Submit(m.OpportunisticWitness(client.id, client.epoch, current.height, *said))


def _screen(client: ClientState, ledger: Ledger) -> None:
    """Compare the results of a round, once; also who is no witness, for when it is one."""
    where = (client.epoch, ledger.height)
    if client.screening.height < where:
        found = client.screening.judge(where, ledger.step, ledger.arrivals(), ledger.shares)
        client.screened = found


def _may_attest(client: ClientState, state: Coordinator, ledger: Ledger | None, now: int) -> bool:
    if not waiting.has_trained(client, state.round):
        return False
    if ledger is None or ledger.complete or waiting.missing(client, state, ledger) == ():
        return True
    end = waiting.too_late(client)
    return end is not None and now >= end


def _turn_over(client: ClientState, state: Coordinator, now: int) -> None:
    """Note when a round begins, and when we are done with our share, by our own clock."""
    if state.turn != client.turn:
        client.turn, client.turn_began, client.worked = state.turn, now, None
    if client.worked is None and state.epoch.rounds and waiting.has_trained(client, state.round):
        client.worked = now - client.turn_began


def _turn(state: Coordinator) -> tuple[int, int, tuple[int, ...], bool]:
    """What decides whom a client knows; a RoundWitness that is over at once is not seen."""
    return *state.turn, state.epoch.absent, bool(state.epoch.clients)
