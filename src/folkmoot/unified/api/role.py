"""One role of a job, step by step: `.role("rollout").run("rl:Rollout").total(4).end()`.

Every method gives the role back. `end()` gives the job; it may be left out, since the role hands
on what it does not know itself, but type checkers follow only with it.
"""

import difflib
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

from folkmoot.core.job import Backoff, JobSpec, Resource, RoleBudget, RoleSpec, Timeouts
from folkmoot.core.job.config import Backend, FailureDomain
from folkmoot.core.job.placement import Strategy

if TYPE_CHECKING:
    from folkmoot.unified.api.builder import JobBuilder

B = TypeVar("B", bound="JobBuilder")
Entry = str | Callable[..., Any]


class RoleBuilder(Generic[B]):
    def __init__(self, job: B, name: str) -> None:
        self.name = name
        self._job = job
        self._fields: dict[str, Any] = {}
        self._nodes: tuple[int, int] | None = None
        self._per_node: int | None = None

    def end(self) -> B:
        """The job, for the next role."""
        return self._job

    def build(self) -> JobSpec:
        return self._job.build()

    def run(self, entry: Entry) -> Self:
        """What its workers run: `module:Class`, `module:function`, a script, or itself."""
        return self._set(entry=entry_name(entry))

    def train(self, entry: Entry) -> Self:
        """The same as elastic training: restarted together, with as many as there are."""
        return self._set(entry=entry_name(entry), backend="elastic")

    def backend(self, backend: Backend) -> Self:
        return self._set(backend=backend)

    def total(self, workers: int) -> Self:
        return self._set(total=workers)

    def elastic(self, least: int, most: int) -> Self:
        """As elastic training that goes on with `least` workers and grows to `most`."""
        return self._set(backend="elastic", min=least, max=most)

    def nnodes(self, nodes: int | str) -> Self:
        """As torchrun's: 2, or "1:4" to go on with 1 and grow to 4."""
        least, _, most = str(nodes).partition(":")
        if not least.isdecimal() or not (most or "0").isdecimal():
            raise ValueError(f"nnodes is a number or least:most, not {nodes!r}")
        self._nodes = int(least), int(most or least)
        return self

    def nproc_per_node(self, workers: int) -> Self:
        self._per_node = workers
        return self

    def per_group(self, workers: int) -> Self:
        """So many workers share a node."""
        return self._set(per_group=workers)

    def placement(self, strategy: Strategy) -> Self:
        return self._set(placement=strategy)

    def resource(
        self, *, cpu: float = 1.0, gpu: float = 0.0, memory: int = 0, **custom: float
    ) -> Self:
        """What one worker uses."""
        return self._set(resource=Resource(cpu=cpu, gpu=gpu, memory=memory, custom=custom))

    def env(self, env: Mapping[str, str] | None = None, **more: str) -> Self:
        return self._add("env", env, more)

    def config(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """What its workers are made with, as keyword arguments."""
        return self._add("config", config, more)

    def args(self, *args: str) -> Self:
        """Further arguments of a script."""
        return self._set(args=args)

    def driver(self, is_one: bool = True) -> Self:
        """The job is finished when its drivers are."""
        return self._set(driver=is_one)

    def not_driver(self) -> Self:
        """The job does not wait for it: it serves the others."""
        return self._set(driver=False)

    def sub_master(self, entry: Entry) -> Self:
        return self._set(sub_master=entry_name(entry))

    def skip_node_check(self) -> Self:
        return self._set(check=False)

    def depends_on(self, *roles: str) -> Self:
        """Roles that run before this one starts, and whose failures may reach it."""
        return self._set(depends_on=roles)

    def failure_domain(self, domain: FailureDomain) -> Self:
        """What starts anew when one of its workers fails."""
        return self._set(failure_domain=domain)

    def on_error(self, then: Literal["restart", "fail"]) -> Self:
        return self._set(on_error=then)

    def budget(self, **failures: int) -> Self:
        """`worker=`, `role=`: how many failures are made good."""
        return self._set(budget=RoleBudget(**failures))

    def backoff(self, **seconds: float) -> Self:
        """`first=`, `most=`, `calm=`: how long one that fails again waits before it starts anew."""
        return self._set(backoff=Backoff(**seconds))

    def timeouts(self, **seconds: float) -> Self:
        """`ready=`, `check=`, `start=`, `silent=`, `hang=`, `stop=`."""
        return self._set(timeouts=Timeouts(**seconds))

    def join_wait(self, seconds: float) -> Self:
        return self._set(join_wait=seconds)

    def reads(self, *channels: str) -> Self:
        return self._set(reads=channels)

    def writes(self, *channels: str) -> Self:
        return self._set(writes=channels)

    def spec(self, gpu: float = 0.0) -> RoleSpec:
        """What was said so far; `gpu` is for a role that said nothing of its resources."""
        fields = dict(self._fields)
        fields.setdefault("entry", "")  # the rules say that it is missing
        if self._nodes is not None or self._per_node is not None:
            least, most = self._nodes or (1, 1)
            each = self._per_node or 1
            fields.update(total=most * each, per_group=each)
            if least != most:
                fields["min"] = least * each
        fields.setdefault("resource", Resource(gpu=gpu))
        return RoleSpec(**fields)

    def _set(self, **fields: Any) -> Self:
        self._fields.update(fields)
        return self

    def _add(self, field: str, first: Mapping[str, Any] | None, more: Mapping[str, Any]) -> Self:
        return self._set(**{field: {**self._fields.get(field, {}), **(first or {}), **more}})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if hasattr(self._job, name):
            return getattr(self._job, name)
        known = [n for n in {*dir(type(self)), *dir(self._job)} if not n.startswith("_")]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise AttributeError(f"neither a role nor a job has {name!r}{hint}")


def entry_name(entry: Entry) -> str:
    """`module:name` of a class or function; text as it is, with `::` for `:` as some write it."""
    if isinstance(entry, str):
        return entry.replace("::", ":", 1)
    module, name = entry.__module__, entry.__qualname__
    if module == "__main__" or "<" in name:
        raise ValueError(
            f"{name} cannot be found by another process: define it in a module of its own, at the"
            " top level"
        )
    return f"{module}:{name}"


def share(roles: int) -> float:
    """Of a device that so many roles use: in hundredths, and never more than there is."""
    return math.floor(100 / roles) / 100
