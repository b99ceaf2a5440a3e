"""Who sends what nobody should learn, again and again: marks, audits, ejection, and staying out.

A quorum of witnesses that screened a client's result (`client/screening.py`) leaves marks on the
client, and every result of it that is learnt takes one off. So a single odd result is forgotten
soon, and who sends nonsense in every round, or in every third, leaves: its place is empty when the
round ends, and its identity stays out for `ejection_epochs`. Fewer than a quorum mark nobody.

A single audit (`audits.py`) proves nothing: a result may have been trained as assigned and fail, or
pass by chance. How often honest results fail depends on the model and on the size of a share. So a
client is compared with the others, and with chance: who fails half of many audits trains on
something else than it was assigned, if the others fail far less often. Where the audits of all tell
nothing, nobody leaves. An auditor that alone fails a result has failed an audit itself.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from folkmoot.core.coordinator.absence import EXPELLED_MAX
from folkmoot.core.coordinator.state import AuditRecord, Coordinator, Ejection, Left

MARKS = 3  # that a screened result leaves
TOO_MANY = 12
# So many audits of a client, and of all others together, tell something; older ones fade by halves.
ENOUGH_AUDITS, AUDITS_KEPT = 40, 128
# By how many standard deviations a client must fail more often than the others.
FAR = 5


def weigh(state: Coordinator, screened: Collection[int], learnt: Collection[int]) -> Coordinator:
    """After a round of which these places' results were screened, and these learnt."""
    if not state.marks and not screened:
        return state
    clients, marks = state.epoch.clients, dict(state.marks)
    for place in learnt:
        identity = clients[place].id
        if marks.get(identity):
            marks[identity] -= 1
    for place in screened:
        marks[clients[place].id] = marks.get(clients[place].id, 0) + MARKS
    out = [place for place in screened if marks[clients[place].id] >= TOO_MANY]
    for place in out:
        del marks[clients[place].id]
    kept = sorted((identity, count) for identity, count in marks.items() if count)
    return _eject(replace(state, marks=tuple(kept[:EXPELLED_MAX])), out, Left.Ejected)


def count_audits(
    state: Coordinator, passed: Sequence[int], failed: Sequence[int], alone: Sequence[int]
) -> Coordinator:
    """After audits that these places' results passed and failed, the latter some auditors alone."""
    clients, records = state.epoch.clients, {record.id: record for record in state.audits}
    against = (*failed, *alone)
    for place, fails in (*((p, 0) for p in passed), *((p, 1) for p in against)):
        known = records.get(clients[place].id, AuditRecord(clients[place].id))
        known = AuditRecord(known.id, known.passed + 1 - fails, known.failed + fails)
        if known.count >= AUDITS_KEPT:
            known = AuditRecord(known.id, known.passed // 2, known.failed // 2)
        records[known.id] = known
    everybody = list(records.values())
    out = [
        p for p in sorted(set(against)) if no_better_than_chance(records[clients[p].id], everybody)
    ]
    for place in out:
        del records[clients[place].id]
    most = sorted(records.values(), key=lambda record: (-record.count, record.id))[:EXPELLED_MAX]
    kept = tuple(sorted(most, key=lambda record: record.id))
    return _eject(replace(state, audits=kept), out, Left.FailedAudits)


def no_better_than_chance(one: AuditRecord, everybody: Collection[AuditRecord]) -> bool:
    """Whether a client fails at least half of its audits, and far more of them than the others."""
    # One more of either kind: what never happened yet may.
    failed = sum(record.failed for record in everybody) - one.failed + 1
    count = sum(record.count for record in everybody) - one.count + 2
    if min(one.count, count) < ENOUGH_AUDITS or 2 * one.failed < one.count:
        return False
    # The binomial distribution's z-score, squared and without fractions.
    above = one.failed * count - one.count * failed
    return above > 0 and above**2 >= FAR**2 * one.count * failed * (count - failed)


def _eject(state: Coordinator, places: Collection[int], why: Left) -> Coordinator:
    if not places:
        return state
    until = state.epoch_number + 1 + state.run.config.ejection_epochs
    held = [ejection for ejection in state.ejected if ejection.until > state.epoch_number]
    new = (Ejection(state.epoch.clients[place].id, until) for place in places)
    leaving = (*state.epoch.leaving, *((place, why) for place in places))
    ejected = tuple((*held, *new)[-EXPELLED_MAX:])
    return replace(state, ejected=ejected, epoch=replace(state.epoch, leaving=leaving))


def is_out(state: Coordinator, identity: bytes) -> bool:
    """Whether a client was ejected and may not come back yet."""
    return any(e.id == identity and e.until > state.epoch_number for e in state.ejected)
