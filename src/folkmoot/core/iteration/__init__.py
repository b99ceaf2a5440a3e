"""Agreement with no leader: ranks that decide together which iteration comes next (seed 002)."""

from folkmoot.core.iteration.config import Rules, Takeover
from folkmoot.core.iteration.heartbeats import Heartbeats
from folkmoot.core.iteration.machine import (
    TABLE,
    AnyEvent,
    apply,
    create,
    decode,
    encode,
    next_tick,
)
from folkmoot.core.iteration.record import Member, Record
from folkmoot.core.iteration.state import Phase, RankState

__all__ = [
    "TABLE",
    "AnyEvent",
    "Heartbeats",
    "Member",
    "Phase",
    "RankState",
    "Record",
    "Rules",
    "Takeover",
    "apply",
    "create",
    "decode",
    "encode",
    "next_tick",
]
