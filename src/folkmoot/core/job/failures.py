"""Who failed first, what that is charged to, and what starts anew.

- A **failure** is a first cause: a process that died or was silent, a node that is gone, a worker
  that was found unfit, or an error of the user's code that nothing else explains. It is charged to
  the worker, its role, its node and the job. When one of these budgets is used up the job fails
  and says why; a node is only avoided from then on, and an elastic role goes on without the worker.
- An **error is suspect** for `blame_grace`. When somebody died that shortly before or after it, the
  error is collateral; when nobody did, the first of the errors is the cause, and the others are
  collateral. Who suffered from another starts anew as well, and is not charged.
- The first death is the one that was **seen** first, whichever was told first: when one whom we
  were about to end turns out to have died before that, the blame moves to it.
- Who fails again soon after its last failure **waits** before it is made again (`backoff`); those
  who only suffered do not, and are ready when it comes.
- What starts anew is the **failure domain** of the role. A process that has not begun to work is
  left alone, there is nothing to repeat; and its own end reaches nobody else. A sub-master starts
  anew alone, unless the domain is the job: its workers can go on without it for a while.
"""

from msgspec.structs import replace

from folkmoot.core.job import delays
from folkmoot.core.job import messages as m
from folkmoot.core.job.draft import Draft
from folkmoot.core.job.state import Actor, Failure, Kind, Phase, Stage, State

#: How many first causes are remembered; all of them are in the event log.
REMEMBERED = 64
#: Milliseconds after which a process that was killed and is still there is killed again.
KILL_AGAIN = 5_000


def fail(draft: Draft, id: str, kind: Kind, how: str, at: int, exit_code: int = 1) -> None:
    """A failure that is its own cause: charge it, excuse those it explains, recover."""
    actor = draft.state.actors[id]
    draft.stage(id, Stage.FAILED, how, result=how)
    forget_suspects(draft, {id})
    _settle(draft, _numbered(draft, actor, kind, how, at, exit_code), [id])


def suspect(draft: Draft, id: str, how: str, at: int, exit_code: int) -> None:
    """The user's code raised: whose fault that is, will be seen."""
    draft.stage(id, Stage.FAILED, how, result=how, deadline=None)
    failure = _numbered(draft, draft.state.actors[id], "error", how, at, exit_code)
    cause = next(
        (f for f in reversed(draft.state.blamed) if _explains(draft.state, f, failure)), None
    )
    draft.set(suspects=(*draft.state.suspects, failure))
    if cause is not None:
        _recover_all(draft, _excuse(draft, cause), cause)


def judge(draft: Draft) -> None:
    """The time of the first suspect is over, and nobody died: it is the cause."""
    first = min(draft.state.suspects, key=lambda s: (s.at, s.number))
    forget_suspects(draft, {first.actor})
    _settle(draft, first, [first.actor])


def lose_node(draft: Draft, node: str, at: int) -> None:
    """One failure, however many were there: the node's."""
    why = f"node {node} is gone"
    lost = [a for a in draft.state.actors.values() if a.node == node]
    at_work = [a.id for a in lost if _at_work(draft.state, a)]
    for actor in lost:
        draft.actor(actor.id, placed=False, node="")
        buried(draft, actor.id)
    failure = _numbered(draft, Actor(id="", node=node), "node gone", why, at)
    _unblame_deaths_there(draft, node, failure.at)
    for id in at_work:
        draft.stage(id, Stage.FAILED, why, result=why)
    _settle(draft, failure, at_work)


def _at_work(state: State, actor: Actor) -> bool:
    """Whether its end is a loss."""
    done = actor.stage in (Stage.FINISH, Stage.FAILED) or state.finished(actor.role)
    return actor.alive and not actor.doomed and not done


def buried(draft: Draft, id: str) -> None:
    """The process of one who was to go is gone."""
    draft.actor(id, alive=False, doomed="", doomed_by=0, deadline=None)


def died_before(draft: Draft, actor: Actor, how: str, at: int) -> None:
    """One whom we were about to end for another's failure had died before that: it is the first."""
    wrong = next((f for f in draft.state.blamed if f.number == actor.doomed_by), None)
    if wrong is None or not wrong.actor or not 0 < wrong.at - at <= grace(draft.state):
        return
    right = replace(
        wrong, actor=actor.id, incarnation=actor.incarnation, node=actor.node, kind="died",
        how=how, at=at, exit_code=1,
    )  # fmt: skip
    _charge(draft, wrong, -1)
    delays.forgive(draft, wrong.actor)
    _pardon(draft, wrong.actor)
    draft.set(blamed=tuple(right if f.number == wrong.number else f for f in draft.state.blamed))
    _charge(draft, right, 1)
    draft.say(_told(right, instead_of=wrong.actor or wrong.node))
    delays.count(draft, right)
    _check_budgets(draft, right)


def recover(draft: Draft, id: str, number: int) -> None:
    """Start anew what the failure of this actor reaches."""
    actor = draft.state.actors[id]
    if not draft.state.working or draft.state.ending or actor.retired:
        _kill(draft, actor, "it failed", number)
        return
    domain, roles = _reach(draft.state, actor)
    renewed = [id]
    for role in roles:
        reset(draft, role)
        renewed += [a.id for a in draft.state.workers(role) if not a.fresh and a.id != id]
    if domain == "job":
        masters = (draft.state.sub_master(role) for role in roles)
        renewed += [a.id for a in masters if a and not a.fresh and a.id != id]
        if draft.state.phase != Phase.INIT:
            draft.set(restarting=True)
    elif not roles and draft.state.roles[actor.role].forming:
        reset(draft, actor.role)
    draft.say(m.Recovering(id, domain, tuple(renewed)))
    for other in renewed:
        why = "it failed" if other == id else f"{id} failed"
        renew(draft, other, why, number)


def reset(draft: Draft, role: str) -> None:
    """The workers of a role wait for each other once more, and are checked once more."""
    draft.role(role, forming=True, checked=False, checking=False, join_deadline=None)


def renew(draft: Draft, id: str, why: str, number: int = 0) -> None:
    """End the process of an actor, if there is one; another follows when it is gone."""
    actor = draft.state.actors[id]
    _kill(draft, actor, why, number)
    forget_suspects(draft, {id})
    if not actor.retired:
        draft.stage(id, Stage.INIT, why, started=0, generation=0, result="")
        _leave_avoided(draft, id)


def _kill(draft: Draft, actor: Actor, why: str, number: int) -> None:
    if actor.alive and not actor.doomed:
        draft.say(m.Kill(actor.id, actor.incarnation, why))
        draft.actor(actor.id, doomed=why, doomed_by=number, deadline=draft.now + KILL_AGAIN)


def end(draft: Draft, reason: str, exit_code: int) -> None:
    """The job has failed; the first reason counts."""
    if draft.state.ending is None:
        draft.set(ending="failed", reason=reason, exit_code=exit_code or 1)


def grace(state: State) -> int:
    return round(state.spec.blame_grace * 1000)


def forget_suspects(draft: Draft, ids: set[str]) -> None:
    if any(s.actor in ids for s in draft.state.suspects):
        draft.set(suspects=tuple(s for s in draft.state.suspects if s.actor not in ids))


def _settle(draft: Draft, cause: Failure, failed: list[str]) -> None:
    """Charge a first cause, excuse those it explains, and start anew what all of that reaches."""
    _blame(draft, cause)
    _recover_all(draft, [*failed, *_excuse(draft, cause)], cause)


def _recover_all(draft: Draft, failed: list[str], cause: Failure) -> None:
    for id in failed:
        # One may have been reached by another's failure already.
        if draft.state.actors[id].stage == Stage.FAILED:
            recover(draft, id, cause.number)


def _excuse(draft: Draft, cause: Failure) -> list[str]:
    """Those who only suffered from this failure: they are not charged."""
    explained = [s for s in draft.state.suspects if _explains(draft.state, cause, s)]
    forget_suspects(draft, {s.actor for s in explained})
    for s in explained:
        draft.say(m.Collateral(s.actor, s.incarnation, s.how, cause.actor or cause.node))
    return [s.actor for s in explained]


def _explains(state: State, cause: Failure, error: Failure) -> bool:
    """A death explains the errors around it; an error those that follow."""
    if cause.actor == error.actor:
        return False
    earliest = 0 if cause.kind == "error" else -grace(state)
    return earliest <= error.at - cause.at <= grace(state)


def _numbered(
    draft: Draft, actor: Actor, kind: Kind, how: str, at: int, exit_code: int = 1
) -> Failure:
    draft.set(seen=draft.state.seen + 1)
    return Failure(
        number=draft.state.seen,
        actor=actor.id,
        incarnation=actor.incarnation,
        node=actor.node,
        kind=kind,
        how=how,
        at=min(at, draft.now),
        exit_code=exit_code,
    )


def _blame(draft: Draft, failure: Failure) -> None:
    draft.set(blamed=(*draft.state.blamed, failure)[-REMEMBERED:])
    _charge(draft, failure, 1)
    draft.say(_told(failure))
    _check_budgets(draft, failure)
    delays.count(draft, failure)


def _told(failure: Failure, instead_of: str = "") -> m.Blamed:
    f = failure
    return m.Blamed(f.actor, f.incarnation, f.node, f.kind, f.how, f.at, instead_of)


def _charge(draft: Draft, failure: Failure, count: int) -> None:
    if actor := draft.state.actors.get(failure.actor):
        draft.actor(actor.id, failures=actor.failures + count)
        role = draft.state.roles[actor.role]
        draft.role(role.name, failures=role.failures + count)
    nodes = draft.state.node_failures
    if failure.node:
        nodes = {**nodes, failure.node: nodes.get(failure.node, 0) + count}
    draft.set(failures=draft.state.failures + count, node_failures=nodes)


def _check_budgets(draft: Draft, failure: Failure) -> None:
    state, actor = draft.state, draft.state.actors.get(failure.actor)
    if reason := _exhausted(state, failure, actor):
        end(draft, reason, failure.exit_code)
    elif actor and actor.failures > state.spec_of(actor.id).budget.worker:
        _retire(draft, actor, failure)


def _exhausted(state: State, failure: Failure, actor: Actor | None) -> str:
    """Why the job cannot go on, if so."""
    last = f"{failure.actor or failure.node}: {failure.how}"
    if actor is not None:
        spec, role = state.spec_of(actor.id), state.roles[actor.role]
        if failure.kind == "error" and spec.on_error == "fail":
            return last
        if role.failures > spec.budget.role:
            return _too_often(f"the role {role.name}", role.failures, spec.budget.role, last)
        if actor.failures > spec.budget.worker and not _dispensable(state, actor):
            return _too_often(actor.id, actor.failures, spec.budget.worker, last)
    if state.failures > state.spec.budget.job:
        return _too_often("the job", state.failures, state.spec.budget.job, last)
    return ""


def _too_often(who: str, count: int, allowed: int, last: str) -> str:
    times = "once" if count == 1 else f"{count} times"
    return f"{who} failed {times}, and {allowed} is its budget; {last}"


def _dispensable(state: State, actor: Actor) -> bool:
    """Whether an elastic role has enough workers without this one."""
    if actor.is_sub_master or not state.spec_of(actor.id).elastic:
        return False
    others = [a for a in state.workers(actor.role) if a.id != actor.id]
    return len(others) >= state.least(actor.role)


def _retire(draft: Draft, actor: Actor, failure: Failure) -> None:
    """An elastic role goes on without a worker that fails too often."""
    draft.actor(actor.id, retired=True)
    reset(draft, actor.role)
    for other in draft.state.workers(actor.role):
        if not other.fresh:
            renew(draft, other.id, f"{actor.id} leaves for good", failure.number)


def _pardon(draft: Draft, id: str) -> None:
    """Take one back who left for a failure that was not its own."""
    actor = draft.state.actors.get(id)
    if actor is None or not actor.retired or actor.rank >= draft.state.roles[actor.role].total:
        return
    if actor.failures <= draft.state.spec_of(id).budget.worker:
        draft.stage(id, Stage.INIT, "another was to blame", retired=False, started=0)


def _reach(state: State, actor: Actor) -> tuple[str, tuple[str, ...]]:
    """How far a failure reaches, and the roles whose workers all start anew for it."""
    domain = state.spec_of(actor.id).domain
    if not actor.started or domain == "worker":
        return "worker", ()
    if domain == "job":
        return domain, tuple(state.roles)
    if actor.is_sub_master:
        return "worker", ()
    if domain == "role":
        return domain, (actor.role,)
    dependents = [r for r in _dependents(state, actor.role) if not state.finished(r)]
    return domain, (actor.role, *dependents)


def _dependents(state: State, role: str) -> list[str]:
    """The roles that depend on one, directly or through others."""
    found = [role]
    for name in found:
        found += [r for r, s in state.spec.roles.items() if name in s.depends_on and r not in found]
    return found[1:]


def _leave_avoided(draft: Draft, id: str) -> None:
    """Look for another place, unless those who share this one would stay behind."""
    actor = draft.state.actors[id]
    spec = draft.state.spec
    alone = spec.roles[actor.role].per_group == 1 and not any(
        actor.role in group for group in spec.colocate
    )
    if actor.node in draft.state.avoided and alone:
        draft.actor(id, placed=False, node="")


def _unblame_deaths_there(draft: Draft, node: str, at: int) -> None:
    """Deaths on a node just before it was found gone were its fault."""
    for failure in draft.state.blamed:
        there = failure.node == node and failure.kind in ("died", "silent") and failure.actor
        if there and 0 <= at - failure.at <= grace(draft.state):
            _charge(draft, failure, -1)
            delays.forgive(draft, failure.actor)
            kept = tuple(f for f in draft.state.blamed if f.number != failure.number)
            draft.set(blamed=kept)
            draft.say(m.Collateral(failure.actor, failure.incarnation, failure.how, node))
