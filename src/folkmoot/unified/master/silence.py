"""Who has been silent for too long: no sign of life of its process, or no progress of its code."""

import time
from collections.abc import Iterator
from typing import NamedTuple

from folkmoot.core.job import Stage, State
from folkmoot.unified.master.line import Contact, Contacts
from folkmoot.unified.substrate import Name


class Quiet(NamedTuple):
    name: Name
    how: str
    hangs: bool  # its process answers, its code does not get on


def quiet(state: State, contacts: Contacts) -> Iterator[Quiet]:
    now = time.monotonic()
    for name, contact in contacts.all():
        if actor := state.process(*name):
            times = state.spec_of(name.actor).timeouts
            if times.silent and contact.heard and now - contact.heard > times.silent:
                yield Quiet(name, f"gave no sign of life for {times.silent:g} s", False)
            elif times.hang and _hangs(actor.stage, contact, now, times.hang):
                yield Quiet(name, f"made no progress for {times.hang:g} s", True)


def _hangs(stage: Stage, contact: Contact, now: float, seconds: float) -> bool:
    return stage is Stage.RUNNING and now - contact.progressed > seconds


def look_every(state: State) -> float:
    """Seconds between two looks: a tenth of what the strictest role allows."""
    times = [role.timeouts for role in state.spec.roles.values()]
    allowed = [s for t in times for s in (t.silent, t.hang) if s]
    return min(1.0, min(allowed, default=10.0) / 10)
