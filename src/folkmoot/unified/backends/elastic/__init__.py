"""Elastic training: workers that form one world, which goes on with as many as there are.

    ElasticMaster    the role's sub-master: checks workers before they start, tells them where they
                     meet (`master`)
    ElasticWorker    around the user's script, function or class: meets the others, sets torchrun's
                     variables, and runs it (`worker`)

When a worker fails, the role starts anew with the workers it has, at least `min`, and once more
when one comes back: what the machine decides (`core/job/forming`) is carried out here.
"""

from folkmoot.core.job import RoleSpec
from folkmoot.unified import entry
from folkmoot.unified.backends.elastic.master import ElasticMaster
from folkmoot.unified.backends.elastic.worker import ElasticWorker
from folkmoot.unified.current import CurrentWorker, as_worker
from folkmoot.unified.worker import Worker

__all__ = ["ElasticMaster", "ElasticWorker"]


def make_worker(role: RoleSpec, current: CurrentWorker) -> Worker:
    inner = entry.make_worker(role.entry, current, role.args)
    with as_worker(current):
        return ElasticWorker(inner, role)


def make_sub_master(role: RoleSpec, current: CurrentWorker) -> Worker:
    with as_worker(current):
        master = ElasticMaster()
        master.check_seconds = role.timeouts.check or ElasticMaster.check_seconds
        current.methods.export_instance(master)
        current.methods.export("status", master.status, inline=True)
        return master
