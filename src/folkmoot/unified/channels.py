"""The channels of a job: who holds them, and how its workers find them.

A channel's holder is the first worker of the role that its spec names; for those that name none the
job gets a role of its own, `channels`, that does nothing else. The holder's process has the broker;
when it dies, its next incarnation takes up what lies in the job's folder, on the same machine. A
worker asks the holder where the channels are, by a call, whenever it needs a connection.
"""

from collections.abc import Callable
from pathlib import Path

import msgspec

from folkmoot.core.job import ChannelSpec, JobSpec, Resource, RoleSpec, actor_id
from folkmoot.unified.channel import Broker, ChannelRules, DataChannel
from folkmoot.unified.channel.errors import ChannelError
from folkmoot.unified.current import CurrentWorker
from folkmoot.unified.job_addresses import boot_id

CHANNELS = "channels"
WHERE = "folkmoot.channels"  # the remote method
PATIENCE = 60.0


class Where(msgspec.Struct, frozen=True):
    """Where a broker is reached: on its own machine, and from others if it can be."""

    machine: str
    unix: str
    tcp: str = ""

    def address(self) -> str:
        here = self.machine == boot_id() and Path(self.unix.removeprefix("unix:")).exists()
        if not here and not self.tcp:
            raise ChannelError("the channels of this job are held on another machine, without TCP")
        return self.unix if here else self.tcp


def with_holders(spec: JobSpec) -> JobSpec:
    """The same job with a holder for every channel."""
    unheld = [name for name, channel in spec.channels.items() if not channel.holder]
    if not unheld:
        return spec
    if CHANNELS in spec.roles:
        raise ValueError(f"the role {CHANNELS!r} holds a job's channels: name yours differently")
    held = {name: msgspec.structs.replace(spec.channels[name], holder=CHANNELS) for name in unheld}
    role = RoleSpec(
        entry="folkmoot.unified.worker:Worker",
        driver=False,
        resource=Resource(cpu=0.0),
        failure_domain="worker",
    )
    return msgspec.structs.replace(
        spec, roles={CHANNELS: role, **spec.roles}, channels={**spec.channels, **held}
    )


class Holder:
    """The broker of the channels that one worker holds."""

    def __init__(self, spec: JobSpec, actor: str, folder: Path, secret: bytes, host: str) -> None:
        held = {name for name, one in spec.channels.items() if actor == actor_id(one.holder, 0)}
        self._broker: Broker | None = None
        if held:
            self._broker = Broker(folder, secret, {name: rules_of(spec, name) for name in held})
            unix = self._broker.listen(f"unix:{folder}/{actor}.sock")
            tcp = self._broker.listen(f"tcp:{host}:0") if host else ""
            self.where = Where(boot_id(), unix, tcp)

    def export(self, current: CurrentWorker) -> None:
        if self._broker is not None:
            where = msgspec.msgpack.encode(self.where)
            current.methods.export(WHERE, lambda: where, inline=True)

    def close(self) -> None:
        if self._broker is not None:
            self._broker.close()


def rules_of(spec: JobSpec, name: str) -> ChannelRules:
    channel: ChannelSpec = spec.channels[name]
    writers = sum(role.size for role in spec.roles.values() if name in role.writes)
    return ChannelRules(
        records=channel.capacity,
        size=channel.size,
        lease_ms=round(channel.lease * 1000),
        producers=max(writers, 1),
    )


def open_channel(spec: JobSpec, current: CurrentWorker, name: str) -> DataChannel:
    """A worker's end of a channel."""
    if name not in spec.channels:
        known = ", ".join(spec.channels) or "none"
        raise ValueError(f"the job has no channel {name!r}; it has {known}")
    return DataChannel(
        name,
        _finder(current, actor_id(spec.channels[name].holder, 0)),
        current.secret,
        producer=current.actor.name,
        patience=PATIENCE,
    )


def _finder(current: CurrentWorker, holder: str) -> Callable[[], str]:
    def find() -> str:
        # Short, since a holder that dies now is not found by waiting for this one.
        answer = current.worker(holder, patience=1.0, timeout=10.0).call(WHERE).result()
        return msgspec.msgpack.decode(answer, type=Where).address()

    return find
