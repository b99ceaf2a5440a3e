"""Properties of the machine of a job over any sequence of events, wise or foolish."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core import job
from folkmoot.core.config import all_broken
from folkmoot.core.job import JobBudget, JobSpec, Phase, RoleBudget, RoleSpec, Stage
from folkmoot.core.job import messages as m
from folkmoot.simulate.audit import Crashed
from folkmoot.simulate.job.audit import JobAudit

ROLES = ("train", "data")
names = st.sampled_from([*(f"{r}-{k}" for r in ROLES for k in range(4)), "train-master", "no-0"])
nodes = st.sampled_from(["n1", "n2", ""])
small = st.integers(0, 3)
times = st.integers(0, 30_000)
living = st.lists(st.builds(m.Living, names, small), max_size=6).map(tuple)
anything = st.one_of(
    st.builds(m.StopAsked),
    st.builds(m.ScaleAsked, st.sampled_from([*ROLES, "no"]), st.integers(-1, 5)),
    st.builds(m.Placed, st.sampled_from([*ROLES, "no"]), st.dictionaries(names, nodes)),
    st.builds(m.Unplaceable, st.sampled_from(ROLES), st.just("no room")),
    st.builds(m.ActorReady, names, small, nodes),
    st.builds(m.ChildrenChecked, st.sampled_from(ROLES), small, small, st.tuples(names)),
    st.builds(m.Report, names, small, st.sampled_from(["RUNNING", "FINISH", "INIT"]), small),
    st.builds(m.Raised, names, small, st.just("ValueError"), times),
    st.builds(m.Died, names, small, st.just("SIGKILL"), times),
    st.builds(m.Silent, names, small, st.just("silent"), times),
    st.builds(m.NodeGone, nodes, times),
    st.builds(m.MasterRestarted, living, times),
    st.builds(m.Tick),
)
# What goes well, so that something is there to go wrong.
progress = st.sampled_from(["place", "ready", "check", "run", "run", "gone", "tick"])
domains = st.sampled_from([None, "worker", "role", "dependents", "job"])
specs = st.builds(
    lambda elastic, total, least, domain, other, worker, all_, grace: JobSpec(
        name="job",
        roles={
            "train": RoleSpec(
                entry="m:T",
                backend="elastic" if elastic else "worker",
                total=total,
                min=min(least, total) if elastic else 0,
                max=3 if elastic else 0,
                failure_domain=domain,
                budget=RoleBudget(worker=worker),
            ),
            "data": RoleSpec(entry="m:D", driver=False, depends_on=("train",), total=other),
        },
        budget=JobBudget(node=1, job=all_),
        blame_grace=grace,
    ),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 3),
    domains,
    st.integers(1, 2),
    st.integers(0, 3),
    st.integers(0, 9),
    st.sampled_from([0.0, 1.0]),
)


def events(state: job.State, what: Any, now: int) -> list[Any]:
    """An event as it is, or by a word those that take everything one step further."""
    actors = state.actors.values()
    if what == "place":
        return [m.Placed(g, dict.fromkeys(p.actors, "n1")) for g, p in state.placing.items()]
    if what == "ready":
        found = [a for a in actors if a.alive and a.stage == Stage.INIT]
        return [m.ActorReady(a.id, a.incarnation, "n2") for a in found]
    if what == "check":
        master = state.sub_master("train")
        number = master.incarnation if master else 1
        return [m.ChildrenChecked("train", number, state.roles["train"].generation)]
    if what == "run":
        return [m.Report(a.id, a.incarnation, "RUNNING", a.started) for a in actors if a.started]
    if what == "gone":
        return [m.Died(a.id, a.incarnation, "SIGKILL", now) for a in actors if a.doomed]
    return [m.Tick() if what == "tick" else what]


def played(spec: JobSpec, happened: list[Any]) -> tuple[job.State, int]:
    """The state of a job once this has happened, and when that is."""
    state, now = job.create(spec), 0
    for what in happened:
        now += 500
        for event in events(state, what, now):
            state, _ = job.apply(state, event, now, 0)
    return state, now


@given(
    specs, st.lists(st.tuples(st.one_of(progress, anything), st.integers(0, 4_000)), max_size=60)
)
def test_invariants_hold_and_the_journal_gives_the_same_bytes(
    spec: JobSpec, happened: list[tuple[Any, int]]
) -> None:
    assert not list(all_broken(spec))
    audit, now = JobAudit(spec), 0
    audit.submit(now, 0, m.StartAsked())
    for what, passed in happened:
        now += passed
        for event in events(audit.state, what, now):
            audit.submit(now, 0, event)
    audit.tell(Crashed())
    assert job.decode(job.encode(audit.state)) == audit.state


@given(specs, st.lists(st.one_of(progress, anything), max_size=40))
def test_a_job_that_is_asked_to_stop_does(spec: JobSpec, happened: list[Any]) -> None:
    state, now = played(spec, [m.StartAsked(), *happened, m.StopAsked()])
    for actor in list(state.living()):
        state, _ = job.apply(state, m.Died(actor.id, actor.incarnation, "exit 0", now), now, 0)
    assert state.phase is Phase.STOPPED
    assert job.next_tick(state, now) is None


@given(specs, st.lists(st.one_of(progress, anything), max_size=40))
def test_a_new_master_that_finds_everyone_touches_nobody(
    spec: JobSpec, happened: list[Any]
) -> None:
    state, now = played(spec, [m.StartAsked(), *happened])
    there = tuple(m.Living(a.id, a.incarnation) for a in state.living())
    after, effects = job.apply(state, m.MasterRestarted(there, now), now, 0)
    assert not any(isinstance(effect, m.Blamed | m.Create) for effect in effects)
    killed = {effect.actor for effect in effects if isinstance(effect, m.Kill)}
    assert killed <= {a.id for a in state.actors.values() if a.doomed}
    assert [a.incarnation for a in after.actors.values()] == [
        a.incarnation for a in state.actors.values()
    ]
