"""Rounds with participants: the federation's two machines, pure."""

from folkmoot.core.federation.config import Rules
from folkmoot.core.federation.machine import (
    TABLE,
    Advert,
    AnyEvent,
    Task,
    admits,
    advert,
    apply,
    create,
    decode,
    encode,
    next_tick,
    task,
)
from folkmoot.core.federation.state import Phase, State

__all__ = [
    "TABLE",
    "Advert",
    "AnyEvent",
    "Phase",
    "Rules",
    "State",
    "Task",
    "admits",
    "advert",
    "apply",
    "create",
    "decode",
    "encode",
    "next_tick",
    "task",
]
