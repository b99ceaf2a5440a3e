"""One job of many roles: the PrimeManager's machine, pure."""

from folkmoot.core.job.backoff import Backoff
from folkmoot.core.job.config import ChannelSpec, JobBudget, JobSpec, RoleBudget, RoleSpec, Timeouts
from folkmoot.core.job.machine import TABLE, AnyEvent, apply, create, decode, encode, next_tick
from folkmoot.core.job.placement import Bundle, ClusterSize, Gang, Resource
from folkmoot.core.job.state import Actor, Phase, Role, Stage, State, actor_id, sub_master_id

__all__ = [
    "TABLE",
    "Actor",
    "AnyEvent",
    "Backoff",
    "Bundle",
    "ChannelSpec",
    "ClusterSize",
    "Gang",
    "JobBudget",
    "JobSpec",
    "Phase",
    "Resource",
    "Role",
    "RoleBudget",
    "RoleSpec",
    "Stage",
    "State",
    "Timeouts",
    "actor_id",
    "apply",
    "create",
    "decode",
    "encode",
    "next_tick",
    "sub_master_id",
]
