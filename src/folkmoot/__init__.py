"""Folkmoot: train one model together on machines nobody fully controls.

What a program uses is here; `docs/library.md` shows each name at work. Names are loaded when they
are used, so that importing this is quick and needs none of the extras. Functions wait for their
result, in a script as in a notebook; programs with an event loop of their own find the same
functions, async, in the modules of `folkmoot.runs` and `folkmoot.federated`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from folkmoot.authority import Denied, Unreachable
    from folkmoot.core.config import ConfigError
    from folkmoot.core.coordinator import Run, decode_run
    from folkmoot.federated.blocking import serve_federation, train_federation
    from folkmoot.federated.coordinator.config import Federation
    from folkmoot.federated.coordinator.config import load as load_federation
    from folkmoot.federated.participant.loop import join as join_federation
    from folkmoot.federated.participant.participant import Participant
    from folkmoot.learning.methods import Method, register_method
    from folkmoot.learning.methods.protocol import Contribution, Refusal
    from folkmoot.observe.logs import read_log
    from folkmoot.runs.blocking import (
        join_run,
        pause_run,
        resume_run,
        run_state,
        serve_run,
        train_together,
    )
    from folkmoot.runs.config import load_run
    from folkmoot.runs.trained_model import TrainedModel, load_checkpoint

__version__ = "0.1.0"
__all__ = [
    "ConfigError",
    "Contribution",
    "Denied",
    "Federation",
    "Method",
    "Participant",
    "Refusal",
    "Run",
    "TrainedModel",
    "Unreachable",
    "__version__",
    "decode_run",
    "join_federation",
    "join_run",
    "load_checkpoint",
    "load_federation",
    "load_run",
    "pause_run",
    "read_log",
    "register_method",
    "resume_run",
    "run_state",
    "serve_federation",
    "serve_run",
    "train_federation",
    "train_together",
]
_HOMES = {
    "authority": "Denied Unreachable",
    "core.config": "ConfigError",
    "core.coordinator": "Run decode_run",
    "federated.blocking": "serve_federation train_federation",
    "federated.coordinator.config": "Federation load_federation:load",
    "federated.participant.loop": "join_federation:join",
    "federated.participant.participant": "Participant",
    "learning.methods": "Method register_method",
    "learning.methods.protocol": "Contribution Refusal",
    "observe.logs": "read_log",
    "runs.blocking": "join_run pause_run resume_run run_state serve_run train_together",
    "runs.config": "load_run",
    "runs.trained_model": "TrainedModel load_checkpoint",
}
"""The names of each module, with the name there where that differs."""


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        for ours, _, there in (one.partition(":") for one in names.split()):
            if ours == name:
                return getattr(import_module(f"folkmoot.{module}"), there or name)
    raise AttributeError(f"module 'folkmoot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
