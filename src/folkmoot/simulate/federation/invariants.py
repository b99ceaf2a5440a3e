"""What must hold after every event of a federation, each a small function that names what is wrong.

All hold whatever crashes, is lost or lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from folkmoot.core.federation import Phase, State
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Delivery
from folkmoot.simulate.audit import Chart, Invariant, Step
from folkmoot.simulate.invariants import OF_EVERY_MACHINE

if TYPE_CHECKING:
    from folkmoot.simulate.federation.audit import FederationAudit

FederationStep = Step[State]
# The chart of a federation, written down once more so that a changed table is noticed.
CHART: Chart = {
    Phase.STANDBY: {Phase.ROUND},
    Phase.ROUND: {Phase.ROUND, Phase.STANDBY, Phase.FINISHED},
}


def finished_is_the_end(audit: FederationAudit, step: FederationStep) -> str | None:
    """Nothing changes a federation that is finished."""
    if step.before.phase is Phase.FINISHED and step.after is not step.before:
        return f"{type(step.event).__name__} changed it"
    return None


def rounds_go_on_one_at_a_time(audit: FederationAudit, step: FederationStep) -> str | None:
    """The round grows by one, when its model is written; the epochs before it never shrink."""
    before, after = step.before, step.after
    written = isinstance(step.event, m.Written)
    if after.round - before.round not in ((0, 1) if written else (0,)):
        return f"{type(step.event).__name__} led from round {before.round} to {after.round}"
    if after.epoch_base < before.epoch_base:
        return f"epoch_base fell from {before.epoch_base} to {after.epoch_base}"
    return None


def a_round_makes_one_model(audit: FederationAudit, step: FederationStep) -> str | None:
    """Updates that are combined again, after a restart, give the same model."""
    event = step.event
    if not isinstance(event, m.Written) or step.after is step.before:
        return None
    if audit.models.setdefault(event.round, event.digest) != event.digest:
        return f"round {event.round} made {event.digest} and {audit.models[event.round]}"
    return None


def a_round_begins_with_enough(audit: FederationAudit, step: FederationStep) -> str | None:
    """No round begins before as many are there, or have delivered, as the rules want."""
    after = step.after
    if not any(isinstance(e, m.StateChanged) and e.after == Phase.ROUND for e in step.effects):
        return None
    present = {*after.members, *(d.id for d in after.deliveries.values())}
    if len(present) < after.rules.min_connected:
        return f"{len(present)} of {after.rules.min_connected}"
    return None


def there_is_room_for_those_inside(audit: FederationAudit, step: FederationStep) -> str | None:
    """No more are connected than there is room for, and none of the expelled."""
    after = step.after
    if len(after.members) > after.rules.capacity:
        return f"{len(after.members)} where {after.rules.capacity} fit"
    inside = set(after.expelled) & set(after.members)
    return f"{sorted(inside)} are expelled and inside" if inside else None


def lists_are_sorted(audit: FederationAudit, step: FederationStep) -> str | None:
    """Equal states have equal bytes, whoever came first."""
    for ids in (step.after.members, step.after.selected):
        if list(ids) != sorted(set(ids)):
            return f"{ids}"
    return None


def nobody_is_selected_outside_a_round(audit: FederationAudit, step: FederationStep) -> str | None:
    if step.after.phase is not Phase.ROUND and step.after.selected:
        return f"{step.after.selected} in {step.after.phase}"
    return None


def an_update_counts_for_who_was_asked(audit: FederationAudit, step: FederationStep) -> str | None:
    """In rounds that are not asynchronous, only the selected deliver."""
    if step.after.rules.asynchronous:
        return None
    strangers = [d.key for d in _counted(step) if d.id not in step.before.selected]
    return f"{strangers} were not asked for" if strangers else None


def only_good_samples_count(audit: FederationAudit, step: FederationStep) -> str | None:
    """An update is of one sample at least, except in round 0, which may begin with no weights."""
    empty = [d.key for d in _counted(step) if d.samples <= 0 and d.round != 0]
    return f"{empty} have no samples" if empty else None


def what_counts_stays(audit: FederationAudit, step: FederationStep) -> str | None:
    """Until its round is over a counted update is neither forgotten nor replaced, unless lost."""
    before, after = step.before.deliveries, step.after.deliveries
    if before is after or step.after.round != step.before.round or isinstance(step.event, m.Lost):
        return None
    gone = [key for key, delivery in before.items() if after.get(key) != delivery]
    return f"{gone} no longer count as they did" if gone else None


def what_is_combined_is_there(audit: FederationAudit, step: FederationStep) -> str | None:
    missing = [key for key in step.after.closing if key not in step.after.deliveries]
    return f"{missing} are combined and were never delivered, or lost" if missing else None


def a_round_closes_once(audit: FederationAudit, step: FederationStep) -> str | None:
    """Unless an update was lost after that."""
    closes = len(_closes(step))
    again = step.before.closing and step.after.round == step.before.round
    if closes > 1 or (closes and again and not isinstance(step.event, m.Lost)):
        return f"round {step.after.round} closed again"
    return None


def a_round_closes_with_enough(audit: FederationAudit, step: FederationStep) -> str | None:
    after = step.after
    for close in _closes(step):
        enough = after.rules.enough(after.goal, len(after.quarantined))
        if len(close.keys) < enough:
            return f"{len(close.keys)} updates of {enough}"
    return None


def updates_are_fresh_and_in_order(audit: FederationAudit, step: FederationStep) -> str | None:
    """A model is made of updates that are not too old, in the one order that all agree on."""
    after = step.after
    for close in _closes(step):
        if list(close.keys) != [d.key for d in after.ordered()]:
            return f"{close.keys} are not in order"
        oldest = after.round - after.rules.max_staleness
        stale = [key for key in close.keys if after.deliveries[key].round < oldest]
        if stale:
            return f"{stale} are too old for round {after.round}"
    return None


def _counted(step: FederationStep) -> Iterator[Delivery]:
    before, after = step.before.deliveries, step.after.deliveries
    return (d for key, d in after.items() if key not in before)


def _closes(step: FederationStep) -> list[m.Aggregate]:
    return [effect for effect in step.effects if isinstance(effect, m.Aggregate)]


INVARIANTS: tuple[Invariant, ...] = (
    *OF_EVERY_MACHINE,
    finished_is_the_end,
    rounds_go_on_one_at_a_time,
    a_round_makes_one_model,
    a_round_begins_with_enough,
    there_is_room_for_those_inside,
    lists_are_sorted,
    nobody_is_selected_outside_a_round,
    an_update_counts_for_who_was_asked,
    only_good_samples_count,
    what_counts_stays,
    what_is_combined_is_there,
    a_round_closes_once,
    a_round_closes_with_enough,
    updates_are_fresh_and_in_order,
)
