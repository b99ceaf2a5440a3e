"""Whom a witness waits for, who of them seems gone, and how long anybody is waited for.

Everything here is in the witness's own time: whom it waits for it asks again and again whether
they are there. Who does not answer for a while seems gone, and the run is told; a quorum of such
words, and the run waits no longer. Whose connection to the authority ended, as that says, is asked
at once and has half as long; that alone makes nobody gone. One that answers and is only slow has
its work waited for as long as three usual rounds of this epoch took, or three times as long as our
own work in this one, so that a run that becomes slower as a whole goes on. A new epoch, which may
have slower members, begins with the run's own limit.
"""

from collections.abc import Iterator

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.absence import storing
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.ledger import Ledger
from folkmoot.core.coordinator.client.state import ClientState, Phase
from folkmoot.core.coordinator.conditions import nothing_to_store
from folkmoot.core.coordinator.receive import IN_ROUND, member
from folkmoot.core.coordinator.state import Coordinator, Round
from folkmoot.core.coordinator.state import Phase as RunPhase
from folkmoot.core.machine import Effect

# How long one may be silent that is waited for, in milliseconds: a quarter of a usual round, so
# that a death costs little beside it; but a computer may be busy for a second, and nobody waits
# longer.
SHORTEST_SILENCE, LONGEST_SILENCE = 1000, 10_000
# Before a first round, everybody is busy with loading.
SILENCE_WHILE_LOADING = 5000
PROBES_PER_SILENCE = 4
# The first question waits a sixteenth of it: most of the time what we wait for is here by then.
FIRST_PROBE = 16
# How many rounds say what is usual: their median, which one client that is slow now and then does
# not move.
PACES_KEPT = 8
# So many milliseconds more for one that answers and does not deliver: whoever is late once loses
# its place.
GRACE = 2000
AT_WORK = (Phase.Ready, Phase.Training, Phase.Learning, Phase.Storing)


def _usual(client: ClientState) -> int:
    """How long a usual round takes: the median of the last ones, the lower of two."""
    return sorted(client.paces)[(len(client.paces) - 1) // 2]


def silence(client: ClientState) -> int:
    """How long one that is waited for may be silent."""
    if not client.paces:
        return SILENCE_WHILE_LOADING
    return min(max(_usual(client) // 4, SHORTEST_SILENCE), LONGEST_SILENCE)


def patience(client: ClientState, name: bytes) -> int:
    """How long this one may leave a question unanswered: less if it hung up on the authority, and
    still some round trips over the longest line."""
    return silence(client) // 2 if name in client.hung_up else silence(client)


def too_late(client: ClientState) -> int | None:
    """When a round's results have been waited for long enough, however alive their makers are."""
    if not client.paces:
        return None
    longest = max(_usual(client), client.worked or 0)
    return client.turn_began + 3 * longest + GRACE


def note_pace(client: ClientState, state: Coordinator, ledger: Ledger | None, now: int) -> None:
    """We are done with a round, too late or not; but those who are gone do not count."""
    if ledger is None or not ledger.shares:
        return  # we waited for nobody
    if not ledger.complete and missing(client, state, ledger) == ():
        return
    client.paces = [*client.paces[1 - PACES_KEPT :], now - client.turn_began]


def next_look(client: ClientState, now: int) -> list[int]:
    """When to look again, if we wait for anybody."""
    if not client.awaited:
        return []
    ends = (when + patience(client, name) for name, when in client.unanswered.items())
    times = (client.probe_after, too_late(client), *ends)
    return [time for time in times if time is not None and time > now]


def watch(client: ClientState, state: Coordinator, now: int) -> Iterator[Effect]:
    """Ask whom we wait for whether they are there, and tell the run who does not answer."""
    election = state.election
    if election is None or client.phase not in AT_WORK or member(state, client.id) is None:
        client.awaited = ()
        return
    before, client.awaited = client.awaited, _awaited(client, state, election, now)
    asked = client.unanswered
    client.unanswered = {name: asked[name] for name in client.awaited if name in asked}
    if client.awaited and not before:
        client.probe_after = now + silence(client) // FIRST_PROBE
    yield from _probe(client, now)
    asked = client.unanswered
    silent = {name for name, when in asked.items() if when + patience(client, name) <= now}
    yield from _call_gone(client, state, election, silent)


def _probe(client: ClientState, now: int) -> Iterator[Effect]:
    """Ask all we wait for when it is time, and who hung up at once."""
    if now >= client.probe_after:
        client.probe_after = now + silence(client) // PROBES_PER_SILENCE
        names = client.awaited
    else:
        asked = client.unanswered
        names = tuple(n for n in client.awaited if n in client.hung_up and n not in asked)
    if names:
        for name in names:
            client.unanswered.setdefault(name, now)
        yield c.Probe(names)


def _call_gone(
    client: ClientState, state: Coordinator, election: Round, silent: set[bytes]
) -> Iterator[Effect]:
    """Say who told of two results; and who seems gone, if that can be the word of a quorum. What
    is not so any more is taken back."""
    where, elected = (client.epoch, election.height), client.elected[1]
    said, named = client.called[1:] if client.called[0] == where else (set(), set())
    if client.id not in elected or (silent == said and client.equivocated == named):
        return
    left = leavers(state)
    # Whoever leaves is called gone for good.
    gone = silent | (said & left)
    if len(elected.keys() - gone) < state.quorum(election):
        gone = said
    false = (client.equivocated - left - {client.id}) | named
    if (gone, false) != (said, named):
        client.called = (where, gone, false)
        lists = (tuple(sorted(names))[: m.GONE_MAX] for names in (gone, false))
        yield c.Submit(m.CallGone(client.id, *where, *lists))


def _awaited(
    client: ClientState, state: Coordinator, election: Round, now: int
) -> tuple[bytes, ...]:
    elected = _elected(client, state, election)
    if client.id not in elected:
        return ()
    names: list[bytes] = []
    if state.phase is RunPhase.Warmup:
        names = _some(state, now // (4 * SILENCE_WHILE_LOADING))
    elif state.phase is RunPhase.Cooldown and not _stored(state):
        names = [state.epoch.clients[place].id for place in storing(state)]
    elif state.phase in IN_ROUND and client.attested == election.height:
        heard = {witness.proof.index for witness in state.round.witnesses}
        names = [name for name, index in elected.items() if index not in heard]
    elif state.phase in IN_ROUND and has_trained(client, election):
        ledger = client.ledgers.get(election.height - state.run.config.delay)
        names = list(missing(client, state, ledger) or ()) if ledger else []
    left = leavers(state) if names else frozenset()
    return tuple(name for name in names[: m.GONE_MAX] if name != client.id and name not in left)


def _elected(client: ClientState, state: Coordinator, election: Round) -> dict[bytes, int]:
    """The witnesses and their roster indices, worked out once for every election."""
    key = (state.epoch_number, state.phase in IN_ROUND, election.height, election.seed)
    if client.elected[0] != key:
        indices = state.committee(election).witness_indices()
        clients = state.epoch.clients
        client.elected = (key, {clients[state.place(election, i)].id: i for i in indices})
    return client.elected[1]


def _some(state: Coordinator, turn: int) -> list[bytes]:
    """Of those who may still be loading as many as can be called gone, in turn."""
    clients = state.epoch.clients
    start = turn * m.GONE_MAX % len(clients) if len(clients) > m.GONE_MAX else 0
    return [client.id for client in (*clients[start:], *clients[:start])[: m.GONE_MAX]]


def _stored(state: Coordinator) -> bool:
    return state.epoch.checkpointed or nothing_to_store(state)


def leavers(state: Coordinator) -> frozenset[bytes]:
    """Those who left, or will when the round ends: nobody waits for them."""
    places = {*state.epoch.absent, *(place for place, _ in state.epoch.leaving)}
    return frozenset(state.epoch.clients[place].id for place in places)


def has_trained(client: ClientState, current: Round) -> bool:
    """Whether our part of a round is done."""
    own = client.ledgers.get(current.height)
    return own is not None and (client.id not in own.shares or client.id in own.first)


def missing(client: ClientState, state: Coordinator, ledger: Ledger) -> tuple[bytes, ...] | None:
    """Whose results may still come; None when they are too many to name."""
    left = leavers(state) | ledger.unavailable | {client.id}
    if len(ledger.shares) - len(ledger.first) > m.GONE_MAX + len(left):
        return None
    return tuple(s for s in ledger.shares if s not in ledger.first and s not in left)
