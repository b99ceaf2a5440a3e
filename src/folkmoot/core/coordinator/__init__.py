"""The collaborative run of many clients: a pure state machine and what it is made of.

`create` makes the first state; `apply(state, event, now, seed)` is all there is to run it.
"""

from folkmoot.core.coordinator.config import Run, decode_run
from folkmoot.core.coordinator.machine import (
    TABLE,
    AnyEvent,
    apply,
    create,
    decode,
    encode,
    next_tick,
)
from folkmoot.core.coordinator.state import Coordinator, Phase

__all__ = [
    "TABLE",
    "AnyEvent",
    "Coordinator",
    "Phase",
    "Run",
    "apply",
    "create",
    "decode",
    "decode_run",
    "encode",
    "next_tick",
]
