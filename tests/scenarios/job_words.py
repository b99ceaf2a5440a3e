"""The words of a job's transcripts.

> role rollout total=2 failure_domain=role     a role of the job to come
> job blame_grace=0.5                          the job, before it begins
> 0 begin                                      at 0 s, its owner wants it to begin
> 0 placed rollout=n1,n1 trainer=n2            its workers have places on these nodes
> 1 ready rollout-0 rollout-1                  processes of the present incarnations are ready
> 1 checked train      > 1 unfit train train-1 verdicts of a sub-master on its workers
> 2 runs trainer-0     > 9 finishes trainer-0  reports; `incarnation=1` speaks for an older process
> 3 dies rollout-0 how=SIGKILL at=2.9          a death, and when it was seen
> 3 errs trainer-0 how=ValueError              an error of the user's code
> 3 silent rollout-1   > 3 lost n1             a hang; a node that is gone
> 4 scale rollout 3    > 5 stop                what the owner asks for
> 6 master rollout-0 rollout-1=1               a new master finds these processes
> show                                         a question changes nothing
"""

from typing import Any, ClassVar

import msgspec

from folkmoot.core import job
from folkmoot.core.config import all_broken
from folkmoot.core.job import JobSpec, RoleSpec, State
from folkmoot.core.job import messages as m
from folkmoot.core.machine import Effect
from scenarios.transcript import Words, read_value


class JobWords(Words):
    machine = job
    codes = tuple(m.Reason)
    silence: ClassVar = ["nothing"]

    def __init__(self) -> None:
        super().__init__()
        self.roles: dict[str, RoleSpec] = {}
        self.now = 0

    def __call__(self, command: str) -> list[str]:
        """Several events of one kind may stand in one command, as `ready a b`."""
        first, *rest = command.split()
        if not first[0].isdecimal() or rest[0] not in ("ready", "runs", "finishes"):
            self.now = round(float(first) * 1000) if first[0].isdecimal() else self.now
            return super().__call__(command)
        verb, *words = rest
        named = [w for w in words if "=" in w]
        said = [
            super(JobWords, self).__call__(" ".join([first, verb, who, *named]))
            for who in words
            if "=" not in who
        ]
        lines = [line for answer in said for line in answer if line != "nothing"]
        return lines or self.silence

    def ask_role(self, name: str, **named: str) -> list[str]:
        values: dict[str, Any] = {"entry": f"jobs:{name}"}
        for key, text in named.items():
            table, _, field = key.rpartition(".")
            (values.setdefault(table, {}) if table else values)[field] = read_value(text)
        self.roles[name] = msgspec.convert(values, RoleSpec)
        return []

    def create_job(self, **named: str) -> State:
        values = {key: read_value(text) for key, text in named.items()}
        if "budget" in values:
            values["budget"] = job.JobBudget(job=values["budget"])
        if "node_budget" in values:
            values["budget"] = job.JobBudget(node=values.pop("node_budget"))
        spec = msgspec.convert({"name": "job", "roles": self.roles, **values}, JobSpec)
        assert not list(all_broken(spec))
        self.roles = {}
        return job.create(spec)

    # Events.

    def say_begin(self) -> m.StartAsked:
        return m.StartAsked()

    def say_stop(self) -> m.StopAsked:
        return m.StopAsked()

    def say_scale(self, role: str, total: str) -> m.ScaleAsked:
        return m.ScaleAsked(role, int(total))

    def say_placed(self, gang: str, *nodes: str, **by_role: str) -> m.Placed:
        return m.Placed(gang, {f"{r}-{k}": n for r, t in by_role.items() for k, n in _ranks(t)})

    def say_unplaceable(self, gang: str) -> m.Unplaceable:
        return m.Unplaceable(gang, "no node has 9 gpus")

    def say_ready(self, who: str, incarnation: str = "", node: str = "") -> m.ActorReady:
        return m.ActorReady(who, self._incarnation(who, incarnation), node)

    def say_checked(self, role: str, generation: str = "") -> m.ChildrenChecked:
        return self._verdict(role, (), generation)

    def say_unfit(self, role: str, *bad: str) -> m.ChildrenChecked:
        return self._verdict(role, bad)

    def say_runs(self, who: str, incarnation: str = "", generation: str = "0") -> m.Report:
        number = self._incarnation(who, incarnation)
        return m.Report(who, number, "RUNNING", int(generation))

    def say_finishes(self, who: str, incarnation: str = "") -> m.Report:
        return m.Report(who, self._incarnation(who, incarnation), "FINISH")

    def say_errs(self, who: str, how: str = "ValueError", at: str = "", code: str = "1") -> Any:
        return m.Raised(who, self._incarnation(who), how, self._at(at), exit_code=int(code))

    def say_dies(self, who: str, incarnation: str = "", how: str = "SIGKILL", at: str = "") -> Any:
        return m.Died(who, self._incarnation(who, incarnation), how, self._at(at))

    def say_silent(self, who: str) -> m.Silent:
        return m.Silent(who, self._incarnation(who), "no sign of life for 30 s", self._at(""))

    def say_lost(self, node: str) -> m.NodeGone:
        return m.NodeGone(node, self._at(""))

    def say_master(self, *who: str, **older: str) -> m.MasterRestarted:
        living = [m.Living(id, self._incarnation(id)) for id in who]
        living += [m.Living(id, int(number)) for id, number in older.items()]
        return m.MasterRestarted(tuple(living), self._at(""))

    def _verdict(self, role: str, bad: tuple[str, ...], generation: str = "") -> m.ChildrenChecked:
        number = int(generation or (self.state.roles[role].generation if self._known(role) else 1))
        master = self._incarnation(f"{role}-master")
        return m.ChildrenChecked(role, master, number, bad, "too slow" if bad else "", self.now)

    def _known(self, role: str) -> bool:
        return role in self.state.roles

    def _incarnation(self, who: str, told: str = "") -> int:
        known = self.state.actors.get(who)
        return int(told or (known.incarnation if known else 1))

    def _at(self, seconds: str) -> int:
        return round(float(seconds) * 1000) if seconds else self.now

    # Questions.

    def ask_show(self) -> list[str]:
        s: State = self.state
        lines = [f"{s.phase}; failures {s.failures}" + (f"; {s.reason}" if s.reason else "")]
        for actor in s.actors.values():
            notes = [f"on {actor.node}" if actor.node else "", "" if actor.alive else "no process"]
            notes += [f"to go: {actor.doomed}" if actor.doomed else ""]
            notes += [f"{actor.failures} failures" if actor.failures else ""]
            told = ", ".join(filter(None, notes))
            lines.append(f"{actor.id} {actor.stage} #{actor.incarnation} {told}".rstrip())
        return lines

    def describe(self, effect: Effect) -> str:
        match effect:
            case m.Place(gang, strategy, bundles, least, avoid):
                told = " | ".join(" ".join(b.actors) for b in bundles)
                some = f", {least} of them first" if least < len(bundles) else ""
                but = f", not on {', '.join(avoid)}" if avoid else ""
                return f"place {gang} ({strategy}): {told}{some}{but}"
            case m.Create(actor, incarnation, node):
                return f"create {actor} #{incarnation}" + (f" on {node}" if node else "")
            case m.Check(role, _, generation, world):
                return f"check {role}, generation {generation}: {' '.join(world)}"
            case m.Start(actor, incarnation, generation, world):
                return f"start {actor} #{incarnation}, generation {generation}: {' '.join(world)}"
            case m.Stop(actor, incarnation):
                return f"stop {actor} #{incarnation}"
            case m.Kill(actor, incarnation, why):
                return f"kill {actor} #{incarnation}: {why}"
            case m.Release(gang):
                return f"release {gang}"
            case m.Finish(exit_code, reason):
                return f"finish with {exit_code}: {reason}"
        return self._told(effect)

    def _told(self, effect: Effect) -> str:
        match effect:
            case m.ActorChanged(actor, incarnation, before, after, why):
                return f"{actor} #{incarnation} {before} -> {after}" + (f": {why}" if why else "")
            case m.Blamed(actor, incarnation, node, kind, how, at, instead_of):
                who = f"{actor} #{incarnation}" if actor else node
                instead = f", not {instead_of}" if instead_of else ""
                return f"blame {who}{instead}: {kind} at {at / 1000:g}, {how}"
            case m.Collateral(actor, incarnation, how, because_of):
                return f"{actor} #{incarnation} suffered from {because_of}: {how}"
            case m.Recovering(actor, domain, actors):
                return f"recover from {actor}, domain {domain}: {' '.join(actors)}"
            case m.Delayed(actor, seconds, in_a_row):
                return f"{actor} waits {seconds:g} s after {in_a_row} failures in a row"
            case m.Formed(role, generation, world):
                return f"{role} forms generation {generation}: {' '.join(world)}"
        return super().describe(effect)


def _ranks(nodes: str) -> list[tuple[int, str]]:
    """`n1,,n2` places ranks 0 and 2."""
    return [(k, node) for k, node in enumerate(nodes.split(",")) if node]
