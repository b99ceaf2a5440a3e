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
# The module of each name, and its name there where that differs.
_HOMES = {
    "ConfigError": "core.config",
    "Contribution": "learning.methods.protocol",
    "Denied": "authority",
    "Federation": "federated.coordinator.config",
    "Method": "learning.methods",
    "Participant": "federated.participant.participant",
    "Refusal": "learning.methods.protocol",
    "Run": "core.coordinator",
    "TrainedModel": "runs.trained_model",
    "Unreachable": "authority",
    "decode_run": "core.coordinator",
    "join_federation": "federated.participant.loop:join",
    "join_run": "runs.blocking",
    "load_checkpoint": "runs.trained_model",
    "load_federation": "federated.coordinator.config:load",
    "load_run": "runs.config",
    "pause_run": "runs.blocking",
    "read_log": "observe.logs",
    "register_method": "learning.methods",
    "resume_run": "runs.blocking",
    "run_state": "runs.blocking",
    "serve_federation": "federated.blocking",
    "serve_run": "runs.blocking",
    "train_federation": "federated.blocking",
    "train_together": "runs.blocking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'folkmoot' has no attribute {name!r}")
    module, _, there = _HOMES[name].partition(":")
    return getattr(import_module(f"folkmoot.{module}"), there or name)


def __dir__() -> list[str]:
    return sorted(__all__)
