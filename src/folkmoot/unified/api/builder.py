"""A job of many roles, step by step.

    job = (
        JobBuilder("pipeline")
        .role("tokenizer").run("text:Tokenizer").total(4).writes("tokens").end()
        .train("train.py --lr 0.1").nnodes("1:2").nproc_per_node(2).reads("tokens").end()
        .channel("tokens", capacity=512)
        .build()
    )

`build` gives the same `JobSpec` as a TOML file would, or `BadJob` with everything that is wrong.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import msgspec

from folkmoot.core.config import Broken
from folkmoot.core.job import ChannelSpec, ClusterSize, JobBudget, JobSpec, Resource
from folkmoot.unified.api.check import checked
from folkmoot.unified.api.role import Entry, RoleBuilder, share
from folkmoot.unified.api.torchrun import read_torchrun

ELASTIC_ROLE = "elastic"
DEVICES = ("CPU", "GPU")


class JobBuilder:
    def __init__(self, name: str = "job") -> None:
        self.name = name
        self._roles: dict[str, RoleBuilder[Any]] = {}
        self._fields: dict[str, Any] = {}
        self._channels: dict[str, ChannelSpec] = {}
        self._together: list[tuple[str, ...]] = []
        self._nodes: int | None = None
        self._devices: int | None = None
        self._device_type = "CPU"

    def cluster(self, nodes: int, *, cpu: float, gpu: float = 0.0, memory: int = 0) -> Self:
        """What the job may count on: so many nodes, each with this."""
        return self._set(
            cluster=ClusterSize(nodes=nodes, node=Resource(cpu=cpu, gpu=gpu, memory=memory))
        )

    def node_num(self, nodes: int) -> Self:
        """With `device_per_node`, a short form of `cluster`."""
        self._nodes = nodes
        return self

    def device_per_node(self, devices: int) -> Self:
        self._devices = devices
        return self

    def device_type(self, device: str) -> Self:
        """ "GPU" gives one to every worker that asks for nothing else, or a share where roles are
        placed together; "CPU", the default, gives none."""
        self._device_type = device
        return self

    def config(self, config: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """What every worker finds in `current_worker().job.config`."""
        return self._set(config={**self._fields.get("config", {}), **(config or {}), **more})

    def global_env(self, env: Mapping[str, str] | None = None, **more: str) -> Self:
        """For every role; a role's own goes before it."""
        return self._set(env={**self._fields.get("env", {}), **(env or {}), **more})

    def role(self, name: str) -> RoleBuilder[Self]:
        if name in self._roles:
            raise ValueError(f"the role {name!r} is defined already")
        self._roles[name] = RoleBuilder(self, name)
        return self._roles[name]

    def workload(self, name: str, entry: Entry) -> RoleBuilder[Self]:
        return self.role(name).run(entry)

    def train(self, entry: Entry) -> RoleBuilder[Self]:
        """Elastic training as the role `elastic`; for more than one, `.role(name).train(entry)`."""
        return self.role(ELASTIC_ROLE).train(entry)

    def by_torchrun_cmd(self, command: str) -> RoleBuilder[Self]:
        """Elastic training as a torchrun command says it, and nothing else."""
        found = read_torchrun(command)
        role = self.train(found.entry).nnodes(found.nnodes).nproc_per_node(found.nproc_per_node)
        if found.max_restarts is not None:
            role.budget(worker=found.max_restarts, role=found.max_restarts)
        return role

    def channel(self, name: str, **options: Any) -> Self:
        """`capacity=`, `size=`, `lease=`, `holder=`: see `ChannelSpec`."""
        if name in self._channels:
            raise ValueError(f"the channel {name!r} is defined already")
        self._channels[name] = ChannelSpec(**options)
        return self

    def with_collocation(self, *roles: str) -> Self:
        """The workers of these roles share nodes, and devices."""
        self._together.append(roles)
        return self

    def with_collocation_all(self, *exclude: str) -> Self:
        """All roles that are defined so far, but these."""
        return self.with_collocation(*(name for name in self._roles if name not in exclude))

    def budget(self, **failures: int) -> Self:
        """`node=`, `job=`: how many failures are made good."""
        return self._set(budget=JobBudget(**failures))

    def blame_grace(self, seconds: float) -> Self:
        return self._set(blame_grace=seconds)

    def place_timeout(self, seconds: float) -> Self:
        return self._set(place_timeout=seconds)

    def build(self) -> JobSpec:
        spec = JobSpec(
            name=self.name,
            roles={name: role.spec(self._gpu(name)) for name, role in self._roles.items()},
            channels=self._channels,
            colocate=tuple(self._together),
            **self._fields,
        )
        return checked(self._with_cluster(spec), self._problems())

    def _problems(self) -> Iterator[Broken]:
        """What only the builder knows to be wrong."""
        if self._device_type not in DEVICES:
            yield Broken("device_type", f"must be CPU or GPU, not {self._device_type!r}")
        if (self._nodes is None) != (self._devices is None):
            yield Broken("cluster", "needs both node_num and device_per_node, or cluster()")

    def _gpu(self, role: str) -> float:
        """What a worker of a role gets that says nothing of its resources."""
        if self._device_type != "GPU":
            return 0.0
        groups = [group for group in self._together if role in group]
        return share(len(groups[0])) if groups else 1.0

    def _with_cluster(self, spec: JobSpec) -> JobSpec:
        if self._nodes is None or self._devices is None or spec.cluster is not None:
            return spec
        if self._device_type == "CPU":
            node = Resource(cpu=self._devices)
        else:  # how many CPUs come with the GPUs was not said: as many as are needed
            cpu = sum(role.size * role.resource.cpu for role in spec.roles.values())
            node = Resource(cpu=cpu, gpu=self._devices)
        return msgspec.structs.replace(spec, cluster=ClusterSize(nodes=self._nodes, node=node))

    def _set(self, **fields: Any) -> Self:
        self._fields.update(fields)
        return self
