"""What must hold after every event of a federation, each a small function that names what is wrong.

All hold whatever crashes, is lost or lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from folkmoot.core.federation import Phase, State
from folkmoot.core.federation import messages as m
from folkmoot.core.federation.state import Delivery
from folkmoot.simulate.audit import Chart, Invariant, Problems, Step
from folkmoot.simulate.invariants import OF_EVERY_MACHINE

if TYPE_CHECKING:
    from folkmoot.simulate.federation.audit import FederationAudit

FederationStep = Step[State]
# The chart of a federation, written down once more so that a changed table is noticed.
CHART: Chart = {
    Phase.STANDBY: {Phase.ROUND, Phase.FINISHED},
    Phase.ROUND: {Phase.ROUND, Phase.STANDBY, Phase.FINISHED},
}


def finished_is_the_end(audit: FederationAudit, step: FederationStep) -> Problems:
    """Nothing changes a federation that is finished."""
    if step.before.phase is Phase.FINISHED and step.after is not step.before:
        yield f"{type(step.event).__name__} changed it"


def rounds_go_on_one_at_a_time(audit: FederationAudit, step: FederationStep) -> Problems:
    """The round grows by one, when its model is written; the epochs before it never shrink."""
    before, after = step.before, step.after
    if after.region:
        return
    written = isinstance(step.event, m.Written)
    if after.round - before.round not in ((0, 1) if written else (0,)):
        yield f"{type(step.event).__name__} led from round {before.round} to {after.round}"
    if after.epoch_base < before.epoch_base:
        yield f"epoch_base fell from {before.epoch_base} to {after.epoch_base}"


def a_region_is_in_the_round_that_it_was_called_to(
    audit: FederationAudit, step: FederationStep
) -> Problems:
    """An aggregator's rounds are those of the coordinator above: no other begins, none again."""
    before, after = step.before, step.after
    if not after.region or after is before:
        return
    called = isinstance(step.event, m.Called) and step.event.above == after.above
    if after.above != before.above and not called:
        yield f"{type(step.event).__name__} changed what is asked for"
    if after.round < before.round or (after.above and after.round != after.above.round):
        yield f"round {before.round} became {after.round}"
    if after.phase is Phase.ROUND and after.above is None:
        yield "a round began that nobody called for"


def a_round_makes_one_model(audit: FederationAudit, step: FederationStep) -> Problems:
    """Updates that are combined again, after a restart, give the same model."""
    event = step.event
    if not isinstance(event, m.Written) or step.after is step.before:
        return
    if audit.models.setdefault(event.round, event.digest) != event.digest:
        yield f"round {event.round} made {event.digest} and {audit.models[event.round]}"


def a_round_begins_with_enough(audit: FederationAudit, step: FederationStep) -> Problems:
    """No round begins before as many are there, or have delivered, as the rules want."""
    after = step.after
    if not any(isinstance(e, m.StateChanged) and e.after == Phase.ROUND for e in step.effects):
        return
    present = {*after.members, *(d.id for d in after.deliveries.values())}
    if len(present) < after.rules.min_connected:
        yield f"{len(present)} of {after.rules.min_connected}"


def there_is_room_for_those_inside(audit: FederationAudit, step: FederationStep) -> Problems:
    """No more are connected than there is room for, and none of the expelled."""
    after = step.after
    if len(after.members) > after.rules.capacity:
        yield f"{len(after.members)} where {after.rules.capacity} fit"
    if inside := set(after.expelled) & set(after.members):
        yield f"{sorted(inside)} are expelled and inside"


def lists_are_sorted(audit: FederationAudit, step: FederationStep) -> Problems:
    """Equal states have equal bytes, whoever came first."""
    for ids in (step.after.members, step.after.selected):
        if list(ids) != sorted(set(ids)):
            yield f"{ids}"


def nobody_is_selected_outside_a_round(audit: FederationAudit, step: FederationStep) -> Problems:
    if step.after.phase is not Phase.ROUND and step.after.selected:
        yield f"{step.after.selected} in {step.after.phase}"


def an_update_counts_for_who_was_asked(audit: FederationAudit, step: FederationStep) -> Problems:
    """In rounds that are not asynchronous, only the selected deliver."""
    if step.after.rules.asynchronous:
        return
    if strangers := [d.key for d in _counted(step) if d.id not in step.before.selected]:
        yield f"{strangers} were not asked for"


def only_good_samples_count(audit: FederationAudit, step: FederationStep) -> Problems:
    """An update is of one sample at least, except in round 0, which may begin with no weights."""
    if empty := [d.key for d in _counted(step) if d.samples <= 0 and d.round != 0]:
        yield f"{empty} have no samples"


def what_counts_stays(audit: FederationAudit, step: FederationStep) -> Problems:
    """Until its round is over a counted update is neither forgotten nor replaced, unless lost."""
    before, after = step.before.deliveries, step.after.deliveries
    over = step.after.round != step.before.round or step.after.phase is Phase.FINISHED
    if before is after or over or isinstance(step.event, m.Lost):
        return
    if gone := [key for key, delivery in before.items() if after.get(key) != delivery]:
        yield f"{gone} no longer count as they did"


def what_is_combined_is_there(audit: FederationAudit, step: FederationStep) -> Problems:
    if missing := [key for key in step.after.closing if key not in step.after.deliveries]:
        yield f"{missing} are combined and were never delivered, or lost"


def a_round_closes_once(audit: FederationAudit, step: FederationStep) -> Problems:
    """Unless an update was lost after that."""
    closes = len(_closes(step))
    again = step.before.closing and step.after.round == step.before.round
    if closes > 1 or (closes and again and not isinstance(step.event, m.Lost)):
        yield f"round {step.after.round} closed again"


def a_round_closes_with_enough(audit: FederationAudit, step: FederationStep) -> Problems:
    after = step.after
    for close in _closes(step):
        enough = after.rules.enough(after.goal, after.given_up)
        if len(close.keys) < enough:
            yield f"{len(close.keys)} updates of {enough}"


def updates_are_fresh_and_in_order(audit: FederationAudit, step: FederationStep) -> Problems:
    """A model is made of updates that are not too old, in the one order that all agree on."""
    after = step.after
    for close in _closes(step):
        if list(close.keys) != [d.key for d in after.ordered()]:
            yield f"{close.keys} are not in order"
        oldest = after.round - after.rules.max_staleness
        if stale := [key for key in close.keys if after.deliveries[key].round < oldest]:
            yield f"{stale} are too old for round {after.round}"


def _counted(step: FederationStep) -> Iterator[Delivery]:
    before, after = step.before.deliveries, step.after.deliveries
    return (d for key, d in after.items() if key not in before)


def _closes(step: FederationStep) -> list[m.Aggregate]:
    return [effect for effect in step.effects if isinstance(effect, m.Aggregate)]


INVARIANTS: tuple[Invariant, ...] = (
    *OF_EVERY_MACHINE,
    finished_is_the_end,
    rounds_go_on_one_at_a_time,
    a_region_is_in_the_round_that_it_was_called_to,
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
