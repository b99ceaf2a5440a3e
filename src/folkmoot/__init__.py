"""Folkmoot: train one model together on machines nobody fully controls.

What a program uses is here; `docs/library.md` shows each name at work. Names are loaded when they
are used, so that importing this is quick and needs none of the extras. Functions wait for their
result, in a script as in a notebook; programs with an event loop of their own find the same
functions, async, in the modules of `folkmoot.runs` and `folkmoot.federated`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as` tells type checkers that a name is exported
    from folkmoot.authority import Denied as Denied
    from folkmoot.authority import Unreachable as Unreachable
    from folkmoot.core.config import ConfigError as ConfigError
    from folkmoot.core.coordinator import Run as Run
    from folkmoot.core.coordinator import decode_run as decode_run
    from folkmoot.federated.blocking import serve_federation as serve_federation
    from folkmoot.federated.blocking import train_federation as train_federation
    from folkmoot.federated.coordinator.config import Federation as Federation
    from folkmoot.federated.coordinator.config import load_federation as load_federation
    from folkmoot.federated.participant.loop import join_federation as join_federation
    from folkmoot.federated.participant.participant import Participant as Participant
    from folkmoot.learning.methods import Method as Method
    from folkmoot.learning.methods import register_method as register_method
    from folkmoot.learning.methods.protocol import Contribution as Contribution
    from folkmoot.learning.methods.protocol import Refusal as Refusal
    from folkmoot.observe.logs import read_log as read_log
    from folkmoot.runs.blocking import extend_run as extend_run
    from folkmoot.runs.blocking import join_run as join_run
    from folkmoot.runs.blocking import pause_run as pause_run
    from folkmoot.runs.blocking import resume_run as resume_run
    from folkmoot.runs.blocking import run_state as run_state
    from folkmoot.runs.blocking import serve_run as serve_run
    from folkmoot.runs.blocking import train_together as train_together
    from folkmoot.runs.blocking import update_run as update_run
    from folkmoot.runs.config import load_run as load_run
    from folkmoot.runs.trained_model import TrainedModel as TrainedModel
    from folkmoot.runs.trained_model import load_checkpoint as load_checkpoint

__version__ = "0.1.0"
_NAMES = {
    "authority": "Denied Unreachable",
    "core.config": "ConfigError",
    "core.coordinator": "Run decode_run",
    "federated.blocking": "serve_federation train_federation",
    "federated.coordinator.config": "Federation load_federation",
    "federated.participant.loop": "join_federation",
    "federated.participant.participant": "Participant",
    "learning.methods": "Method register_method",
    "learning.methods.protocol": "Contribution Refusal",
    "observe.logs": "read_log",
    "runs.blocking": (
        "extend_run join_run pause_run resume_run run_state serve_run train_together update_run"
    ),
    "runs.config": "load_run",
    "runs.trained_model": "TrainedModel load_checkpoint",
}
"""Which module gives which names."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'folkmoot' has no attribute {name!r}")
    return getattr(import_module(f"folkmoot.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
