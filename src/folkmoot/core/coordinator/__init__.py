"""The collaborative run of many clients: a pure state machine and what it is made of.

`apply(state, message, now, seed)` is all there is to run it; `create` makes the first state.
"""

from folkmoot.core.coordinator.config import Run, decode_run
from folkmoot.core.coordinator.machine import TABLE, Outcome, apply, create, next_tick
from folkmoot.core.coordinator.state import Coordinator, RunState, decode, encode

__all__ = [
    "TABLE",
    "Coordinator",
    "Outcome",
    "Run",
    "RunState",
    "apply",
    "create",
    "decode",
    "decode_run",
    "encode",
    "next_tick",
]
