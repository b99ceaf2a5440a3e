"""A plain second opinion on what a rank may propose, and on who may be in a decision."""

import json

from folkmoot.core.iteration import Rules, keys
from folkmoot.core.iteration.record import Member, Record, read_arrival, read_heartbeat, read_record
from folkmoot.core.iteration.state import Asked, RankState
from folkmoot.simulate.iteration.store import Store, Values


def doubt(seen: RankState, after: RankState, values: Values, *, late: bool) -> str:
    """What is wrong with the proposal that a rank makes after a look at everything; "" if nothing.

    `late`: whether it has waited for as long as its rules say.
    """
    if after.asked is not Asked.Proposal:
        return ""
    if seen.asked is Asked.Arrival:
        return _doubt_everybody(seen, after, values[1] or b"")
    if seen.asked is not Asked.Everything:
        return f"{after.proposal!r} is proposed after an answer to {seen.asked}"
    world, old = seen.rules.world, read_record(values[0], seen.rules.world)
    record = read_record(after.proposal, world)
    if record is None or record.iteration != (old.iteration + 1 if old else 0):
        return f"{after.proposal!r} is proposed after {values[0]!r}"
    there, waited = _seen(seen, record, old, values)
    if {(x.rank, x.incarnation) for x in record.members} != there:
        return f"{record} is proposed, and there were {sorted(there)}"
    if waited and not (late and (old is None or seen.rules.straggler_timeout)):
        return f"{record} is proposed without waiting for {sorted(waited)}"
    return ""


def _doubt_everybody(seen: RankState, after: RankState, listed: bytes) -> str:
    """Without a look at everything: only if all ranks are there, by the same processes."""
    record, old = read_record(after.proposal, seen.rules.world), seen.record
    if record is None or old is None or seen.silent:
        return f"{after.proposal!r} is proposed without a look"
    notes = json.loads(f"[{listed.decode()[:-1]}]")
    newest = {(r, max(n[1] for n in notes if n[0] == r)) for r in {n[0] for n in notes}}
    there = {(x.rank, x.incarnation) for x in record.members}
    before = {(x.rank, x.incarnation) for x in old.members}
    if not there == before == newest or len(there) != seen.rules.world or record.admit:
        return f"{record} is proposed after {old}, and there were {sorted(newest)}"
    if record.iteration != old.iteration + 1:
        return f"{record} is proposed after {old}"
    return ""


def doubt_move(before: Store, after: Store, rules: Rules) -> str:
    """What is wrong with how the newest decision moved; "" if nothing."""
    old, new = before.get(keys.CONSENSUS), after.get(keys.CONSENSUS)
    if old == new:
        return ""
    record, last = (read_record(value, rules.world) for value in (new, old))
    number = last.iteration if last else -1
    if record is None:
        return f"iteration {number} is followed by {new!r}"
    if record.iteration != number + 1:
        return f"iteration {number} is followed by {record.iteration}"
    if len(record.members) < rules.min_ranks:
        return f"{record} has fewer than min_ranks"
    late = [member for member in record.members if not _had_arrived(after, record, member)]
    return f"{late} did not arrive for iteration {record.iteration}" if late else ""


def _seen(
    seen: RankState, record: Record, old: Record | None, values: Values
) -> tuple[set[tuple[int, int]], set[int]]:
    """The processes that have arrived, and the ranks that live, are expected and have not."""
    world, there, waited = seen.rules.world, set(), set()
    expected = {*old.ranks, *old.admit} if old else set(range(world))
    for rank in range(world):
        arrival = read_arrival(values[1 + rank])
        beat = read_heartbeat(values[1 + world + rank])
        if beat is None or beat.over or (rank in seen.silent and rank != seen.rank):
            continue
        if arrival and arrival[:2] == (record.iteration - 1, beat.incarnation):
            there.add((rank, beat.incarnation))
        elif rank in expected:
            waited.add(rank)
    return there, waited


def _had_arrived(store: Store, record: Record, member: Member) -> bool:
    """Whether this process, or a newer one of its rank, was done with the iteration before."""
    arrival = read_arrival(store.get(keys.last_iteration(member.rank)))
    own = (member.incarnation, record.iteration - 1)
    return arrival is not None and (arrival.incarnation, arrival.iteration) >= own
