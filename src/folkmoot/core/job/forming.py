"""What follows in a job that goes on: places, processes, worlds of workers, their start.

Every function looks at the state and does what is due and was not done; `follow` is called until
nothing changes. So it does not matter in which order things happened, nor who held the state then.

- All actors are created at once, each as soon as it has a place. A gang has its places all at
  once; an elastic role begins with those of as few bundles as it can go on with.
- A role **forms** when its workers are ready. Its sub-master checks them first, if it should. An
  elastic role that has enough waits `join_wait` for those that have no place, and then goes on.
- A role that has formed starts once the job is READY and the roles it depends on run: the
  sub-master first, and when it runs the workers, as one generation.
- A worker that comes back alone starts in the generation that runs. One that comes to an elastic
  role that runs without it makes the role form anew, after `join_wait`, once the job is RUNNING.
"""

from folkmoot.core.job import messages as m
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.failures import renew, reset
from folkmoot.core.job.placement import Bundle, Gang
from folkmoot.core.job.state import Actor, Phase, Placing, Role, Stage, State, role_of


def follow(draft: Draft) -> None:
    place(draft)
    create(draft)
    for name in draft.state.roles:
        if draft.state.roles[name].forming:
            form(draft, name)
        else:
            start(draft, name)
            grow(draft, name)


# Places and processes.


def place(draft: Draft) -> None:
    """Ask for the places that are missing and were not asked for."""
    if not any(_unplaced(actor) for actor in draft.state.actors.values()):
        return
    totals = {name: role.total for name, role in draft.state.roles.items()}
    for gang in draft.state.spec.gangs_of(totals):
        _place_gang(draft, gang)


def _place_gang(draft: Draft, gang: Gang) -> None:
    state = draft.state
    ids = tuple(id for b in gang.bundles for id in b.actors if _wants_place(state, id))
    waiting = state.placing.get(gang.name)
    if not ids or (waiting and {*ids} <= {*waiting.actors}):
        return
    until = draft.after(state.spec.place_timeout)
    draft.set(
        placing={**state.placing, gang.name: Placing(ids, until)},
        gangs=tuple(dict.fromkeys((*state.gangs, gang.name))),
    )
    draft.say(place_effect(draft.state, gang))


def place_effect(state: State, gang: Gang) -> m.Place:
    """The places that a gang waits for."""
    waiting = {*state.placing[gang.name].actors}
    parts = (tuple(id for id in b.actors if id in waiting) for b in gang.bundles)
    bundles = tuple(Bundle(ids, state.spec.needs(ids)) for ids in parts if ids)
    there = len(gang.bundles) - len(bundles)
    least = max(_least_bundles(state, gang) - there, 1)
    return m.Place(gang.name, gang.strategy, bundles, min(least, len(bundles)), state.avoided)


def enough_placed(state: State, gang: Gang) -> bool:
    """Whether all roles of a gang can go on without the places that are still missing."""
    roles = {role_of(id) for bundle in gang.bundles for id in bundle.actors}
    return all(sum(a.placed for a in state.workers(role)) >= state.least(role) for role in roles)


def _least_bundles(state: State, gang: Gang) -> int:
    roles = {role_of(id) for id in gang.bundles[0].actors}
    needs = (-(-state.least(role) // state.spec.roles[role].per_group) for role in roles)
    return max(needs)


def _unplaced(actor: Actor) -> bool:
    return not (actor.is_sub_master or actor.placed or actor.retired or actor.alive) and (
        actor.stage == Stage.INIT
    )


def _wants_place(state: State, id: str) -> bool:
    return id in state.actors and _unplaced(state.actors[id])


def create(draft: Draft) -> None:
    """Make a process for every actor that should have one, and need not wait for it."""
    for actor in list(draft.state.actors.values()):
        placed = actor.placed or actor.is_sub_master
        may = placed and (actor.not_before or 0) <= draft.now
        if may and actor.stage == Stage.INIT and not (actor.alive or actor.retired):
            wait = draft.state.spec_of(actor.id).timeouts.ready
            changed = draft.actor(
                actor.id,
                incarnation=actor.incarnation + 1,
                alive=True,
                deadline=draft.after(wait),
            )
            draft.say(m.Create(changed.id, changed.incarnation, changed.node))


# Worlds of workers.


def form(draft: Draft, name: str) -> None:
    """Have the workers checked when they are together, and started when they may be."""
    _wait_for_more(draft, name)
    role, spec = draft.state.roles[name], draft.state.spec.roles[name]
    if not gathered(draft.state, role):
        if role.checking or role.checked:
            draft.role(name, checking=False, checked=False)
        return
    if spec.has_sub_master and spec.check and not role.checked:
        if not role.checking:
            _check(draft, role)
    elif _may_start(draft.state, name):
        world = role.world if role.checked else _ready(draft.state, name)
        generation = role.generation + (0 if role.checked else 1)
        draft.role(name, forming=False, generation=generation, world=world, join_deadline=None)
        draft.say(m.Formed(name, generation, world))


def prepared(state: State, name: str) -> bool:
    """Whether a role is ready to start, or has started."""
    role, spec = state.roles[name], state.spec.roles[name]
    checked = role.checked or not (spec.has_sub_master and spec.check)
    return not role.forming or (gathered(state, role) and checked)


def gathered(state: State, role: Role) -> bool:
    """Whether its workers, or enough of them, are there with their sub-master."""
    master = state.sub_master(role.name)
    if master is not None and not _present(master):
        return False
    if role.checking or role.checked:
        return {*role.world} <= {*_ready(state, role.name)}
    everyone = all(worker.placed for worker in state.workers(role.name))
    return _enough(state, role.name) and (everyone or role.join_deadline == 0)


def _enough(state: State, name: str) -> bool:
    """Whether all who have a place are ready, and are enough.

    An elastic role does not go on without a worker that is on its way: it would form anew for that
    one at once, and for those that it ends for it, and so for ever.
    """
    ready = _ready(state, name)
    coming = [worker.id for worker in state.workers(name) if worker.placed]
    return {*coming} <= {*ready} and len(ready) >= state.least(name)


def _wait_for_more(draft: Draft, name: str) -> None:
    """Set the time until which an elastic role that has enough waits for the rest."""
    role, spec = draft.state.roles[name], draft.state.spec.roles[name]
    if not spec.elastic or role.checking or role.checked:
        return
    everyone = all(worker.placed for worker in draft.state.workers(name))
    enough = _enough(draft.state, name) and not everyone
    if enough and role.join_deadline is None:
        draft.role(name, join_deadline=draft.after(spec.join_wait) or 0)
    elif not enough and role.join_deadline is not None:
        draft.role(name, join_deadline=None)


def _check(draft: Draft, role: Role) -> None:
    world, generation = _ready(draft.state, role.name), role.generation + 1
    draft.role(role.name, checking=True, generation=generation, world=world)
    draft.say(check_effect(draft, role.name))


def check_effect(draft: Draft, name: str) -> m.Check:
    """Ask a sub-master for its verdict, until it is overdue."""
    role, master = draft.state.roles[name], draft.state.sub_master(name)
    assert master is not None
    draft.actor(master.id, deadline=draft.after(draft.state.spec.roles[name].timeouts.check))
    return m.Check(name, master.incarnation, role.generation, role.world)


def _may_start(state: State, name: str) -> bool:
    """The job is READY, and those before it run."""
    others = state.spec.roles[name].depends_on
    return state.phase in (Phase.READY, Phase.RUNNING) and all(
        state.runs(other) or state.finished(other) for other in others
    )


def _ready(state: State, name: str) -> tuple[str, ...]:
    found = (a for a in state.workers(name) if a.stage == Stage.READY and a.alive)
    return tuple(a.id for a in found if not a.doomed)


def _present(actor: Actor) -> bool:
    there = actor.stage in (Stage.READY, Stage.RUNNING, Stage.FINISH)
    return there and actor.alive and not actor.doomed


# Starts.


def start(draft: Draft, name: str) -> None:
    """Start whoever of a formed role should run and was not told."""
    role, master = draft.state.roles[name], draft.state.sub_master(name)
    if master is not None:
        if _present(master) and master.stage != Stage.FINISH and master.started < role.generation:
            _start(draft, master, role)
        if master.generation < role.generation:
            return
    for worker in draft.state.workers(name):
        waits = worker.stage == Stage.READY and not (worker.started or worker.doomed)
        if waits and _takes_part(draft, name, worker):
            _start(draft, worker, draft.state.roles[name])


def start_effect(state: State, actor: Actor) -> m.Start:
    role = state.roles[actor.role]
    return m.Start(actor.id, actor.incarnation, actor.started, role.world)


def _start(draft: Draft, actor: Actor, role: Role) -> None:
    wait = draft.state.spec.roles[role.name].timeouts.start
    changed = draft.actor(actor.id, started=role.generation, deadline=draft.after(wait))
    draft.say(start_effect(draft.state, changed))


def _takes_part(draft: Draft, name: str, worker: Actor) -> bool:
    """Whether a worker is of the world that runs; a new one of a role that is not elastic joins."""
    role = draft.state.roles[name]
    if worker.id in role.world:
        return True
    if draft.state.spec.roles[name].elastic:
        return False
    members = sorted((*role.world, worker.id), key=lambda id: int(id.rpartition("-")[2]))
    draft.role(name, world=tuple(members))
    return True


def grow(draft: Draft, name: str) -> None:
    """Form an elastic role anew when workers are there that it runs without."""
    role, spec = draft.state.roles[name], draft.state.spec.roles[name]
    if not spec.elastic or draft.state.phase != Phase.RUNNING:
        return
    waiting = [id for id in _ready(draft.state, name) if id not in role.world]
    done = any(draft.state.actors[id].stage == Stage.FINISH for id in role.world)
    if not waiting or done or not draft.state.runs(name):
        if role.join_deadline is not None:
            draft.role(name, join_deadline=None)
    elif role.join_deadline is None:
        draft.role(name, join_deadline=draft.after(spec.join_wait) or 0)
    elif role.join_deadline == 0:
        form_anew(draft, name, f"{', '.join(waiting)} joined")


def form_anew(draft: Draft, name: str, why: str) -> None:
    """Start all workers of a role once more, though none has failed."""
    reset(draft, name)
    for worker in draft.state.workers(name):
        if not worker.fresh:
            renew(draft, worker.id, why)
