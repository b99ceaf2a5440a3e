"""What a role's `backend` makes of its entry. One module for each, imported when it is used.

A backend's module has `make_worker(role, current)`, and `make_sub_master(role, current)` if its
roles have one: each gives a `Worker` whose hooks the job calls.
"""

from importlib import import_module

from folkmoot.core.job import RoleSpec
from folkmoot.core.job.state import is_sub_master
from folkmoot.unified import entry
from folkmoot.unified.current import CurrentWorker
from folkmoot.unified.worker import Worker

MODULES = {
    "elastic": "folkmoot.unified.backends.elastic",
    "self_loop": "folkmoot.unified.backends.self_loop",
}


def make(role: RoleSpec, current: CurrentWorker) -> Worker:
    """The worker, or the sub-master, that `current` is to be."""
    sub_master = is_sub_master(current.actor.name)
    if sub_master and role.sub_master:
        return entry.make_worker(role.sub_master, current)
    if module := MODULES.get(role.backend):
        made: Worker = getattr(
            import_module(module), "make_sub_master" if sub_master else "make_worker"
        )(role, current)
        return made
    return entry.make_worker(role.entry, current, role.args)
