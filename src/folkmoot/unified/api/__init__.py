"""What the code of a job imports: to write a job down, and to be a worker of one.

    from folkmoot.unified.api import JobBuilder, Worker, rpc

A job is written fluently in Python or as TOML; both give one `JobSpec`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from folkmoot.core.job import JobSpec
from folkmoot.unified.api.builder import JobBuilder
from folkmoot.unified.api.check import BadJob
from folkmoot.unified.api.load import load_job
from folkmoot.unified.api.rl import RLJobBuilder
from folkmoot.unified.api.role import RoleBuilder
from folkmoot.unified.backends.trainer import Trainer, answered
from folkmoot.unified.current import CurrentWorker, current_worker
from folkmoot.unified.rpc.errors import CallTimeout, RemoteError, RpcError, WorkerDied
from folkmoot.unified.rpc.group import Broadcast, FutureSequence, RoleGroup
from folkmoot.unified.rpc.methods import rpc
from folkmoot.unified.worker import SubMaster, Worker

if TYPE_CHECKING:
    from folkmoot.unified.backends.self_loop import SelfLoop as SelfLoop
    from folkmoot.unified.channel import DataChannel as DataChannel
    from folkmoot.unified.jobs import run_job as run_job
    from folkmoot.unified.jobs import submit_job as submit_job

# Loaded when they are used: most workers never do.
_LATER = {
    "DataChannel": "channel",
    "SelfLoop": "backends.self_loop",
    "run_job": "jobs",
    "submit_job": "jobs",
}

__all__ = [
    "BadJob",
    "Broadcast",
    "CallTimeout",
    "CurrentWorker",
    "DataChannel",
    "FutureSequence",
    "JobBuilder",
    "JobSpec",
    "RLJobBuilder",
    "RemoteError",
    "RoleBuilder",
    "RoleGroup",
    "RpcError",
    "SelfLoop",
    "SubMaster",
    "Trainer",
    "Worker",
    "WorkerDied",
    "answered",
    "current_worker",
    "load_job",
    "rpc",
    "run_job",
    "submit_job",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"folkmoot.unified.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
