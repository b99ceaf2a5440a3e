"""What must hold of a federation's coordinator after any event."""

from folkmoot.core.federation import Phase, State
from folkmoot.core.federation import messages as m


def broken_promises(
    before: State, event: m.AnyEvent, after: State, effects: tuple[m.Effect, ...]
) -> list[str]:
    """What must hold after any event, whatever happened before; empty when all is well."""
    rules, closes = after.rules, [e for e in effects if isinstance(e, m.Aggregate)]
    counted = [d for d in after.deliveries.values() if d.key not in before.deliveries]
    refused = any(isinstance(e, m.Refused) for e in effects)
    lost = isinstance(event, m.Lost)
    promises = {
        "a refused event changes nothing": not refused or after is before,
        "FINISHED is the end": before.phase is not Phase.FINISHED or after is before,
        "rounds only go on, one at a time": after.round - before.round in (0, 1),
        "a round ends with its model": after.round == before.round or isinstance(event, m.Written),
        "epoch_base follows the rounds": after.epoch_base >= before.epoch_base,
        "there is room for those inside": len(after.members) <= rules.capacity,
        "lists are sorted, without repetition": all(
            list(ids) == sorted(set(ids)) for ids in (after.members, after.selected)
        ),
        "the expelled are out": not set(after.expelled) & set(after.members),
        "an update counts only for who was asked": rules.asynchronous
        or all(d.id in before.selected for d in counted),
        "only good samples count": all(d.samples > 0 or d.round == 0 for d in counted),
        "a round closes once, unless an update is lost": len(closes) <= 1
        and not (closes and before.closing and after.round == before.round and not lost),
        "updates are fresh enough": all(
            after.deliveries[key].round >= after.round - rules.max_staleness
            for e in closes
            for key in e.keys
        ),
        "a round closes with enough": all(
            len(e.keys) >= rules.enough(after.goal, len(after.quarantined)) for e in closes
        ),
        "updates are combined in one order": all(
            list(e.keys) == [d.key for d in after.ordered()] for e in closes
        ),
        "nobody is selected outside a round": after.phase is Phase.ROUND or not after.selected,
    }
    return [promise for promise, holds in promises.items() if not holds]
