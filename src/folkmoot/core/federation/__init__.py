"""Rounds with participants: the federation's two machines, pure."""

from folkmoot.core.federation.machine import Advert, Task, admits, advert, apply, begin, task
from folkmoot.core.federation.rules import Rules
from folkmoot.core.federation.state import FINISHED, ROUND, STANDBY, State, canonical, restore

__all__ = [
    "FINISHED",
    "ROUND",
    "STANDBY",
    "Advert",
    "Rules",
    "State",
    "Task",
    "admits",
    "advert",
    "apply",
    "begin",
    "canonical",
    "restore",
    "task",
]
