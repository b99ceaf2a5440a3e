"""What must hold of every machine after every event: see `core/machine`."""

from typing import Any

from folkmoot.core.machine import Refused, StateChanged
from folkmoot.simulate.audit import Audit, Invariant, Problems, Step


def a_refused_event_changes_nothing(audit: Audit[Any, Any], step: Step[Any]) -> Problems:
    """The state after a refusal is the very object that was before it."""
    if step.has(Refused) and (step.after is not step.before or len(step.effects) != 1):
        yield f"{type(step.event).__name__} was refused and changed the state"


def phases_follow_the_chart(audit: Audit[Any, Any], step: Step[Any]) -> Problems:
    """A phase changes along an edge of the chart, and says so."""
    phase = step.before.phase
    for effect in step.effects:
        if isinstance(effect, StateChanged):
            if effect.before != phase or effect.after not in audit.chart.get(phase, ()):
                yield f"was in {phase} and said {effect.before} to {effect.after}"
            phase = effect.after
    if phase != step.after.phase:
        yield f"said {phase} and is in {step.after.phase}"


def bytes_come_back(audit: Audit[Any, Any], step: Step[Any]) -> Problems:
    """A state decodes from its bytes to an equal state with equal bytes. Tried at each phase."""
    if not step.moved:
        return
    data = audit.machine.encode(step.after)
    if audit.machine.encode(audit.machine.decode(data)) != data:
        yield "a state changes when it is stored"


OF_EVERY_MACHINE: tuple[Invariant, ...] = (
    a_refused_event_changes_nothing,
    phases_follow_the_chart,
    bytes_come_back,
)
