"""One rank of a job that agrees with the others on the next iteration. No rank is special.

The rules, in words:

- A rank that is done with iteration n writes down that it has **arrived**, in a key of its own, and
  behind that a note for the others on a list. Its process is known by its **incarnation**, a number
  that grows with every start of the rank. One rank is one member: of its processes the newest.
- Whoever sees that everybody expected has arrived, or is silent, **proposes** iteration n + 1 with
  those who are there. The proposal is one compare-and-set of one key, from the exact bytes of
  decision n: exactly one wins, and it decides number and members in the same instant. Who slept
  through a decision holds bytes that are no longer there and can win nothing.
- Most often the last to arrive finds on the list **everybody**: all ranks there are, each by the
  process that is a member of iteration n, and none of them silent. It proposes without another
  look. In all other cases who proposes has looked at everything, and an arrival counts only while
  the rank's heartbeat is of the same incarnation.
- So an older process counts in one case: it was a member, it has arrived, and what replaces it has
  not. That is as if it had been replaced a moment after the decision, which can always happen:
  the others find it lost, and the newer process is waited for in the iteration after.
- A winner wakes those who wait; they read what was decided where it was decided. One that dies
  before it woke anybody holds up nobody: whoever finds a decision wakes the others. The rest (show
  the number, clean up) nobody waits for.
- Most often everybody goes on **as before**: all ranks, by the same processes, all equally far. Who
  has arrived can say what that decision will be, to the byte. So it has a wakeup of its own, which
  is set only after the decision was made, by who found it made: who waits for that one, for a
  moment, reads nothing. Else it waits as always.
- Silence only lets others go on without a rank. A rank that finds itself left out arrives for the
  next iteration; whoever is alive and not there is **admitted**: the next iteration waits for it.
- A rank stops when a newer process of it lives, when the store has lost what it knew, or when what
  stands there cannot be read. It never guesses a number.

Only `TABLE` changes the phase. There is at most one open request to the store (`asked`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from folkmoot.core.iteration import keys
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.config import Rules, Takeover
from folkmoot.core.iteration.record import (
    HIGHEST,
    Arrival,
    Heartbeat,
    Note,
    Record,
    count_notes,
    decision,
    encode_note,
    encode_record,
    read_arrival,
    read_heartbeat,
    read_notes,
    read_record,
)
from folkmoot.core.iteration.state import Asked, Phase, RankState
from folkmoot.core.machine import Effect, Outcome, StateChanged, decoder
from folkmoot.core.machine import encode as encode
from folkmoot.core.table import Edge

# Milliseconds that a rank waits to hear that everybody goes on as before, and reads nothing.
MOMENT = 100
# Keys of this many iterations stay for those who read late; they cost a few bytes each. A key that
# a dying winner left is deleted with those of the iteration `KEPT` later.
KEPT = 4

AnyEvent = m.AnyEvent
decode = decoder(RankState)
replace = msgspec.structs.replace
Step = tuple[RankState, tuple[Effect, ...]]


# By these names because looking up a member of an enum takes longer than most functions here, with
# Python 3.11.
P = Phase
RESTARTING, TRAINING, READY, CONSENSUS = P.Restarting, P.Training, P.Ready, P.Consensus
NEW_ITERATION, STOPPED = P.NewIteration, P.Stopped
NOTHING, ARRIVAL, DECISION = Asked.Nothing, Asked.Arrival, Asked.Decision
PROPOSAL = Asked.Proposal


# Guards of the table.


def must_stop(s: RankState) -> bool:
    return s.stop != ""


def done(s: RankState) -> bool:
    return s.done


def decided(s: RankState) -> bool:
    return s.iteration >= s.target


def is_member(s: RankState) -> bool:
    return s.record is not None and s.record.has(s.rank, s.incarnation)


def is_left_out(s: RankState) -> bool:
    return not is_member(s)


_STOPS = (P.Restarting, P.Training, P.Ready, P.Consensus, P.Advance)
TABLE: tuple[Edge[RankState], ...] = (
    *(Edge(phase, P.Stopped, "it must not go on", must_stop) for phase in _STOPS),
    Edge(P.Restarting, P.Ready, "it has an incarnation and knows the newest decision", done),
    Edge(P.Training, P.Ready, "it is done with the iteration", done),
    Edge(P.Ready, P.Consensus, "its arrival is written down", done),
    Edge(P.Consensus, P.Advance, "it found a decision, whose winner may have died", done),
    Edge(P.Consensus, P.NewIteration, "it has decided, or was woken", decided),
    Edge(P.Advance, P.NewIteration, "the others are woken", done),
    Edge(P.NewIteration, P.Training, "it is a member", is_member),
    Edge(P.NewIteration, P.Ready, "it was left out, and catches up", is_left_out),
)


# By where they begin, each with what is told of it: a rank passes several edges in each of
# thousands of iterations a second. Those to `Stopped` are due when it must stop, and never else.
_Told = tuple[Callable[[RankState], bool], Phase, StateChanged]


def _edges(*, stopping: bool) -> dict[Phase, tuple[_Told, ...]]:
    return {
        phase: tuple(
            (e.due, P(e.target), StateChanged(phase, P(e.target), e.when))
            for e in TABLE
            if e.source == phase and (stopping or e.due is not must_stop)
        )
        for phase in P
    }


_EDGES, _STOPPING = _edges(stopping=False), _edges(stopping=True)


def create(rules: Rules, rank: int) -> RankState:
    """A rank before its process has asked anything."""
    if not 0 <= rank < rules.world:
        raise ValueError(f"rank {rank} is not one of 0 to {rules.world - 1}")
    return RankState(rules, rank)


def apply(state: RankState, event: m.AnyEvent, now: int, seed: int) -> Outcome[RankState]:
    """Take one event at `now` (milliseconds of this rank's own clock); `seed` spreads waiting."""
    changed, effects = _RECEIVE[type(event)](state, event, now)
    if changed is state:
        return Outcome(state, effects)
    edges, at = _STOPPING if changed.stop else _EDGES, None
    while at is not changed:
        at = changed
        for due, target, told in edges[at.phase]:
            if due(at):
                entered = replace(at, phase=target, done=False)
                changed, more = _ENTER[target](entered, at.phase, now)
                effects += (told, *more)
                break
    if changed.phase is CONSENSUS and changed.asked is NOTHING:
        changed, more = _go_on(changed, seed)
        effects += more
    return Outcome(changed, effects)


def next_tick(state: RankState, now: int) -> int | None:
    """While it watches an older process of its rank: when it has watched long enough."""
    if state.phase is RESTARTING and state.asked is NOTHING and state.heartbeat:
        return state.since + state.rules.heartbeat_timeout
    return None


# What the seed calls them: each makes one request, or reads one answer.


def handle_rank_restart(state: RankState) -> Step:
    """The first question of a process: is this the job it thinks it is?"""
    world = str(state.rules.world).encode()
    return _ask(state, Asked.World, m.CompareSet(keys.WORLD, b"", world))


def catch_up_restarting_rank(state: RankState, register: bytes | None) -> RankState:
    """Know the newest decision; or stop, if what is there cannot follow what it knows."""
    if register is None:
        return state if state.record is None else _stop(state, m.Reason.StoreEmpty)
    record = read_record(register, state.rules.world)
    if record is None:
        return _stop(state, m.Reason.Garbage)
    if record.iteration < state.iteration:
        return _stop(state, m.Reason.StoreEmpty)
    return replace(state, register=register, record=record)


def record_iteration_for_rank(state: RankState) -> Step:
    """Arrive: this process is done with everything up to the iteration before its target."""
    desired = bytes(Arrival(state.target - 1, state.incarnation, state.progress))
    note = encode_note(Note(state.rank, state.incarnation, state.progress))
    key, arrived = keys.last_iteration(state.rank), keys.arrived(state.target)
    enough = state.how_many_expected() - len(state.silent)
    state = replace(state, as_before=_can_go_on_as_before(state))
    wait = _wait(state, 167 * state.rank)
    request = m.Arrive(
        key, state.arrival, desired, arrived, note, enough, wait.key, wait.ms, wait.then
    )
    return _ask(state, ARRIVAL, request)


def _can_go_on_as_before(state: RankState) -> bool:
    return is_member(state) and state.how_many_members() == state.rules.world and not state.silent


def _wait(state: RankState, seed: int) -> m.Wait:
    """What there is to wait for when nothing else is to be done."""
    ms = _spread(state.rules, seed)
    if state.as_before:
        return m.Wait(keys.ready_as_before(state.target), min(ms, MOMENT))
    wakeup = keys.SILENCE if state.deaf else keys.ready(state.target)
    return m.Wait(wakeup, ms, keys.CONSENSUS)


def get_active_ranks_for_coordination(
    state: RankState, heartbeats: Sequence[bytes | None]
) -> dict[int, int]:
    """Ranks that live, with their incarnations: a heartbeat that is neither over nor silent."""
    beats = ((rank, read_heartbeat(value)) for rank, value in enumerate(heartbeats))
    silent = set(state.silent) - {state.rank}
    return {r: b.incarnation for r, b in beats if b and not b.over and r not in silent}


def increment_global_iteration(
    state: RankState, notes: dict[int, Note], active: dict[int, int]
) -> Step:
    """Propose the target iteration with those who are there, and wake those who wait for it."""
    admit = tuple(rank for rank in active if rank not in notes)
    desired = encode_record(decision(state.target, notes.values(), admit))
    wakeups: tuple[str, ...] = (keys.ready(state.target),)
    if _can_go_on_as_before(state) and desired == _as_before(state)[0]:
        wakeups = keys.ready_as_before(state.target), *wakeups
    request = m.Decide(keys.CONSENSUS, state.register, desired, wakeups)
    return _ask(replace(state, proposal=desired, as_before=False), PROPOSAL, request)


def _as_before(state: RankState) -> tuple[bytes, Record]:
    """The decision by which everybody goes on as before, all as far as this rank."""
    assert state.record is not None
    record = Record(state.target, state.progress, state.record.members, (), ())
    return encode_record(record), record


def signal_global_iteration_ready(state: RankState) -> Step:
    """Wake those who wait for the newest decision."""
    return _ask(state, Asked.Wake, m.Set(keys.ready(state.iteration), m.WOKEN))


def clear_global_iteration_ready(iteration: int) -> m.Housekeeping:
    """Show the number, and delete what nobody reads any more; twice, in case a winner died."""
    old = [n for n in (iteration - KEPT, iteration - 2 * KEPT) if n >= 0]
    names = keys.ready, keys.ready_as_before, keys.arrived
    delete = tuple(key(n) for n in old for key in names)
    return m.Housekeeping(iteration, delete)


def send_heartbeat(rank: int, standing: Heartbeat) -> m.CompareSet:
    """Move the rank's heartbeat on by one. An answer that is not `desired` is `Beaten`."""
    return m.CompareSet(keys.heartbeat(rank), bytes(standing), bytes(standing.next()))


# Events.


def _started(state: RankState, event: m.Started, now: int) -> Step:
    if state.phase is not RESTARTING or state.asked is not NOTHING:
        return _refuse(state, "this process has started already")
    return handle_rank_restart(state)


def _finished(state: RankState, event: m.Finished, now: int) -> Step:
    if state.phase is READY and state.asked is ARRIVAL:
        # Not sent yet: what it has loaded since it started counts.
        return record_iteration_for_rank(replace(state, progress=event.progress, since=now))
    if state.phase is not TRAINING:
        return _refuse(state, f"it is not training: it is {state.phase}")
    return replace(state, done=True, progress=event.progress), ()


def _silent(state: RankState, event: m.Silent, now: int) -> Step:
    if event.ranks == state.silent:
        return state, ()
    return replace(state, silent=event.ranks), ()


def _beaten(state: RankState, event: m.Beaten, now: int) -> Step:
    if state.phase is STOPPED:
        return state, ()
    found = read_heartbeat(event.found)
    if event.found is None:
        return _stop(state, m.Reason.StoreEmpty), ()
    fenced = found is not None and found.incarnation >= state.incarnation
    return _stop(state, m.Reason.Fenced if fenced else m.Reason.Garbage), ()


def _leave(state: RankState, event: m.Leave, now: int) -> Step:
    return (state if state.phase is STOPPED else _stop(state, m.Reason.Left)), ()


def _tick(state: RankState, event: m.Tick, now: int) -> Step:
    due = next_tick(state, now)
    if due is None or now < due:
        return state, ()
    return _ask(state, Asked.OlderAgain, m.GetMany((keys.heartbeat(state.rank),)))


def _answered(state: RankState, event: m.Answered, now: int) -> Step:
    if state.asked is NOTHING or state.phase is STOPPED:
        return _refuse(state, "it has asked the store nothing")
    return _ANSWER[state.asked](replace(state, asked=NOTHING), event.values, now)


_RECEIVE: dict[type, Callable[[RankState, Any, int], Step]] = {
    m.Started: _started,
    m.Answered: _answered,
    m.Finished: _finished,
    m.Silent: _silent,
    m.Beaten: _beaten,
    m.Leave: _leave,
    m.Tick: _tick,
}


# Answers of the store. `Values` has one value for each key that was asked for.

Values = Sequence[bytes | None]


def _world(state: RankState, values: Values, now: int) -> Step:
    if values[0] != str(state.rules.world).encode():
        return _stop(state, m.Reason.WorldMismatch), ()
    if state.rules.takeover is Takeover.fence:
        return _take_incarnation(state)
    return _ask(state, Asked.Older, m.GetMany((keys.heartbeat(state.rank),)))


def _older(state: RankState, values: Values, now: int) -> Step:
    beat = read_heartbeat(values[0])
    if beat is None or beat.over:
        return _take_incarnation(state)
    return replace(state, heartbeat=values[0] or b"", since=now), ()


def _older_again(state: RankState, values: Values, now: int) -> Step:
    beat = read_heartbeat(values[0])
    if values[0] != state.heartbeat and beat and not beat.over:
        return _stop(state, m.Reason.RankTaken), ()
    return _take_incarnation(state)


def _take_incarnation(state: RankState) -> Step:
    return _ask(state, Asked.Incarnation, m.Add(keys.incarnation(state.rank), 1))


def _incarnation(state: RankState, values: Values, now: int) -> Step:
    number = int(values[0] or 0)
    if not 0 < number <= HIGHEST:
        return _stop(state, m.Reason.Garbage), ()
    mine = (keys.CONSENSUS, keys.last_iteration(state.rank), keys.heartbeat(state.rank))
    return _ask(replace(state, incarnation=number), Asked.Present, m.GetMany(mine))


def _present(state: RankState, values: Values, now: int) -> Step:
    register, arrival, heartbeat = values
    state = replace(state, arrival=arrival or b"")
    return _be_born(catch_up_restarting_rank(state, register), heartbeat)


def _be_born(state: RankState, found: bytes | None) -> Step:
    """Take the rank's heartbeat over from the process before, if there is no newer one."""
    beat = read_heartbeat(found)
    if state.stop:
        return state, ()
    if beat and beat.incarnation > state.incarnation:
        return _stop(state, m.Reason.Fenced), ()
    request = m.CompareSet(keys.heartbeat(state.rank), found or b"", _birth(state))
    return _ask(state, Asked.Birth, request)


def _birth(state: RankState) -> bytes:
    return bytes(Heartbeat(state.incarnation, "0"))


def _born(state: RankState, values: Values, now: int) -> Step:
    if values[0] != _birth(state):
        return _be_born(state, values[0])
    born = replace(state, heartbeat=_birth(state), done=True)
    return born, (m.Born(state.incarnation, _birth(state)),)


def _arrival(state: RankState, values: Values, now: int) -> Step:
    found, listed = values[:2]
    mine = bytes(Arrival(state.target - 1, state.incarnation, state.progress))
    if found != mine:
        return _arrive_again(state, found)
    state = replace(state, arrival=mine, done=True)
    if len(values) > 2:
        return _decision(state, values[2:], now)  # it has waited in the same breath
    # A note is on the list before it is read: the last to arrive always sees everybody's.
    if count_notes(listed) + len(state.silent) < state.how_many_expected():
        return state, ()
    notes = read_notes(listed)
    if notes is None:
        return replace(state, look=True), ()
    if _everybody(state, notes):
        return replace(state, everybody=tuple(notes.values())), ()
    return replace(state, look=notes.keys() | set(state.silent) >= set(state.expected())), ()


def _everybody(state: RankState, notes: dict[int, Note]) -> bool:
    """Whether all ranks there are have arrived, by the processes of the last decision."""
    last = state.record.members if state.record else ()
    if state.silent or not len(last) == len(notes) == state.rules.world:
        return False
    return all(x.rank in notes and notes[x.rank].incarnation == x.incarnation for x in last)


def _arrive_again(state: RankState, found: bytes | None) -> Step:
    """Our key is not what we knew: a newer process of this rank wrote it, or an older one."""
    other = read_arrival(found)
    if found is None and state.arrival:
        return _stop(state, m.Reason.StoreEmpty), ()
    if other and other.incarnation > state.incarnation:
        return _stop(state, m.Reason.Fenced), ()
    return record_iteration_for_rank(replace(state, arrival=found or b""))


def _decision(state: RankState, values: Values, now: int) -> Step:
    if state.as_before:
        state = replace(state, as_before=False)
        if values[0] is None:
            return state, ()
        register, record = _as_before(state)
        return replace(state, register=register, record=record), ()
    if values[0] is None:
        return replace(state, look=True), ()
    after = catch_up_restarting_rank(state, values[0])
    if after.stop or decided(after):
        return after, ()
    # Nobody of us sets it before it is decided: look, and do not wait for that wakeup any more.
    return replace(state, look=True, deaf=True), ()


def _everything(state: RankState, values: Values, now: int) -> Step:
    world = state.rules.world
    state = catch_up_restarting_rank(replace(state, look=False, as_before=False), values[0])
    if state.stop or decided(state):
        return replace(state, done=True), ()
    arrivals, active = values[1 : 1 + world], values[1 + world :]
    return _propose_or_wait(state, arrivals, get_active_ranks_for_coordination(state, active), now)


def _propose_or_wait(state: RankState, arrivals: Values, active: dict[int, int], now: int) -> Step:
    if active.get(state.rank, state.incarnation) != state.incarnation:
        return _stop(state, m.Reason.Fenced), ()
    members = _arrived(state, arrivals, active)
    missing, why = _missing(state, members, active, now)
    if not missing:
        return increment_global_iteration(replace(state, missing=()), members, active)
    if missing == state.missing:
        return state, ()
    return replace(state, missing=missing), (m.Stalled(state.target, missing, why),)


def _arrived(state: RankState, arrivals: Values, active: dict[int, int]) -> dict[int, Note]:
    """Those who live and have arrived for the target, by the same process."""
    found = ((rank, read_arrival(value)) for rank, value in enumerate(arrivals))
    return {
        rank: Note(rank, a.incarnation, a.progress)
        for rank, a in found
        if a and a.iteration == state.target - 1 and active.get(rank) == a.incarnation
    }


def _missing(
    state: RankState, members: dict[int, Note], active: dict[int, int], now: int
) -> tuple[tuple[int, ...], str]:
    """Who is waited for, and why; nobody when the ranks that are there may go on."""
    rules, waited = state.rules, now - state.since
    absent = tuple(r for r in state.expected() if r not in members)
    alive = tuple(rank for rank in absent if rank in active)
    if state.record is None and absent and waited < rules.join_timeout:
        return absent, "the first iteration waits for every rank"
    if alive and not 0 < rules.straggler_timeout <= waited:
        return alive, "they are alive and have not arrived"
    if len(members) < rules.min_ranks or state.rank not in members:
        return absent, f"{len(members)} ranks are there, and min_ranks is {rules.min_ranks}"
    return (), ""


def _proposal(state: RankState, values: Values, now: int) -> Step:
    after = catch_up_restarting_rank(state, values[0])
    if after.stop or values[0] is None:
        return _stop(state, after.stop or m.Reason.StoreEmpty), ()
    if _has_won(after):
        return after, ()
    # Whose decision it is may have died before it woke the others.
    return replace(after, proposal=b"", done=decided(after), look=not decided(after)), ()


def _has_won(state: RankState) -> bool:
    return state.register == state.proposal


def _wake(state: RankState, values: Values, now: int) -> Step:
    return replace(state, done=True), ()


_ANSWER: dict[Asked, Callable[[RankState, Values, int], Step]] = {
    Asked.World: _world,
    Asked.Older: _older,
    Asked.OlderAgain: _older_again,
    Asked.Incarnation: _incarnation,
    Asked.Present: _present,
    Asked.Birth: _born,
    Asked.Arrival: _arrival,
    Asked.Decision: _decision,
    Asked.Everything: _everything,
    Asked.Proposal: _proposal,
    Asked.Wake: _wake,
}


# What a phase begins with.


def _enter_ready(state: RankState, before: Phase, now: int) -> Step:
    left_out: tuple[Effect, ...] = ()
    if before is NEW_ITERATION and state.record is not None:
        left_out = (m.Excluded(state.record),)
    arriving = replace(state, target=state.iteration + 1, since=now, deaf=False)
    state, effects = record_iteration_for_rank(arriving)
    return state, left_out + effects


def _enter_consensus(state: RankState, before: Phase, now: int) -> Step:
    return replace(state, missing=()) if state.missing else state, ()


def _go_on(state: RankState, seed: int) -> Step:
    """Propose if everybody is there, else look at everything if that is worth it, else wait."""
    if state.everybody:
        notes = {note.rank: note for note in state.everybody}
        return increment_global_iteration(replace(state, everybody=()), notes, {})
    if state.look:
        ranks = range(state.rules.world)
        arrivals, beats = map(keys.last_iteration, ranks), map(keys.heartbeat, ranks)
        return _ask(state, Asked.Everything, m.GetMany((keys.CONSENSUS, *arrivals, *beats)))
    return _ask(state, DECISION, _wait(state, seed))


def _spread(rules: Rules, seed: int) -> int:
    """How long to wait before a look, in ms; ranks that waited equally long would look at once."""
    return max(rules.pace * (768 + seed % 512) // 1024, 1)


def _enter_advance(state: RankState, before: Phase, now: int) -> Step:
    return signal_global_iteration_ready(state)


def _enter_new_iteration(state: RankState, before: Phase, now: int) -> Step:
    return state, (clear_global_iteration_ready(state.iteration),) if _has_won(state) else ()


def _enter_training(state: RankState, before: Phase, now: int) -> Step:
    assert state.record is not None
    return replace(state, proposal=b""), (m.Advanced(state.record, _has_won(state)),)


def _enter_stopped(state: RankState, before: Phase, now: int) -> Step:
    reason = m.Reason(state.stop)
    text = _WHY[reason].format(rank=state.rank, world=state.rules.world, n=state.iteration)
    return replace(state, asked=NOTHING), (m.Stopped(reason, text),)


_ENTER: dict[Phase, Callable[[RankState, Phase, int], Step]] = {
    P.Ready: _enter_ready,
    P.Consensus: _enter_consensus,
    P.Advance: _enter_advance,
    P.NewIteration: _enter_new_iteration,
    P.Training: _enter_training,
    P.Stopped: _enter_stopped,
}
_WHY = {
    m.Reason.Fenced: "another process took rank {rank} over; this one stops, and what it does from"
    " now on counts for nothing",
    m.Reason.RankTaken: "rank {rank} is alive in another process: give this one another rank, stop"
    " the other, or start with takeover = 'fence' to replace it",
    m.Reason.WorldMismatch: "rank {rank} was started for {world} ranks, and the store holds a job"
    " with another number: use the same world everywhere, or another job name",
    m.Reason.StoreEmpty: "the store has lost iteration {n} and everything before: it was restarted"
    " empty. Start all ranks again from their last checkpoint; etcd keeps its data on disk",
    m.Reason.Garbage: "the store holds something else than this job's decisions: somebody else"
    " writes there. Use another job name or another store",
    m.Reason.Left: "rank {rank} has left",
}


def _ask(state: RankState, what: Asked, request: m.Request) -> Step:
    return replace(state, asked=what), (request,)


def _stop(state: RankState, why: str) -> RankState:
    return replace(state, stop=str(why))


def _refuse(state: RankState, reason: str) -> Step:
    return state, (m.Refused(m.Reason.WrongPhase, reason),)
