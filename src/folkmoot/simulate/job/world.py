"""Worlds of a job: processes die, hang and raise, hosts are lost, the master is killed."""

from random import Random

from folkmoot.core.config import all_broken
from folkmoot.core.job import Backoff, JobBudget, JobSpec, RoleBudget, RoleSpec, Timeouts
from folkmoot.core.job import messages as m
from folkmoot.simulate.audit import Crashed
from folkmoot.simulate.job.audit import JobAudit
from folkmoot.simulate.job.faults import JOB_FAULTS
from folkmoot.simulate.job.host import HostNode
from folkmoot.simulate.job.master import MasterNode
from folkmoot.simulate.job.mutants import MUTANTS
from folkmoot.simulate.world import World

NAMES = ("trainer", "rollout", "reward", "source")
TIMES = Timeouts(ready=15.0, check=10.0, start=8.0, silent=4.0, stop=2.0)


def draw_role(random: Random, before: list[str], driver: bool) -> RoleSpec:
    elastic = random.random() < 0.4
    size = random.choice((1, 2, 3, 3))
    return RoleSpec(
        entry="job:Work",
        backend="elastic" if elastic else random.choice(("worker", "self_loop")),
        total=size,
        min=random.randint(1, size) if elastic else 0,
        max=size + random.randrange(2) if elastic else 0,
        join_wait=random.choice((0.0, 1.0, 3.0)),
        sub_master="" if elastic or random.random() < 0.8 else "job:Master",
        check=random.random() < 0.7,
        driver=driver,
        depends_on=tuple(name for name in before if random.random() < 0.3),
        failure_domain=random.choice((None, None, "worker", "role", "dependents", "job")),
        on_error=random.choice(("restart", "restart", "restart", "fail")),
        budget=RoleBudget(worker=random.choice((0, 1, 3, 20)), role=random.choice((2, 10, 40))),
        backoff=random.choice((Backoff(), Backoff(first=0.0), Backoff(first=2.0, most=5.0))),
        timeouts=TIMES,
    )


def draw_spec(random: Random) -> JobSpec:
    """A small job, with every rule that matters drawn from the seed."""
    names = NAMES[: random.choice((1, 2, 2, 3, 4))]
    roles: dict[str, RoleSpec] = {}
    for name in names:
        driver = name == names[0] or random.random() < 0.3
        roles[name] = draw_role(random, list(roles), driver)
    spec = JobSpec(
        name="job",
        roles=roles,
        budget=JobBudget(node=random.choice((0, 2, 5)), job=random.choice((3, 15, 60))),
        blame_grace=random.choice((0.0, 0.5, 1.0, 1.0)),
        place_timeout=30.0,
    )
    assert not list(all_broken(spec))
    return spec


class JobWorld(World):
    audit_type = JobAudit
    mutants = MUTANTS
    faults = JOB_FAULTS
    lengths = (3_000, 6_000, 12_000, 20_000)
    strikes = 4
    pace = 0.6
    patience = 400_000
    epilogue = 12_000
    audit: JobAudit
    coordinator: MasterNode
    nodes: list[HostNode]

    def populate(self) -> None:
        self.audit = JobAudit(draw_spec(self.loop.random))
        self.coordinator = MasterNode(self.loop, self.network, self.audit)
        count = self.loop.random.choice((1, 2, 2, 3))
        self.nodes = [
            HostNode(self.loop, self.network, self.coordinator, f"n{k}") for k in range(count)
        ]
        self.coordinator.hosts = self.nodes
        for host in self.nodes:
            host.hosts = self.nodes

    def on_calm(self) -> None:
        self.coordinator.scarce = False

    def play(self) -> None:
        super().play()
        left = [p.actor for host in self.nodes for p in host.processes.values() if not p.hung]
        problem = [f"{left} run after the end"] if left else []
        self.audit.check("no_process_outlives_the_job", problem)

    def progress(self) -> str:
        state = self.audit.state
        actors = ", ".join(
            f"{a.id} {a.stage} #{a.incarnation}{'' if a.alive else ' gone'}{' ' + a.doomed}"
            for a in state.actors.values()
        )
        return f"{state.phase}: {actors}"

    def counts(self) -> dict[str, int]:
        effects = self.audit.effects
        return {
            "processes": sum(isinstance(effect, m.Create) for effect in effects),
            "failures": sum(isinstance(effect, m.Blamed) for effect in effects),
            "collateral": sum(isinstance(effect, m.Collateral) for effect in effects),
            "blames moved": sum(bool(e.instead_of) for e in effects if isinstance(e, m.Blamed)),
            "masters": sum(isinstance(entry, Crashed) for entry in self.audit.log),
            "finished": int(self.audit.state.exit_code == 0),
        }
