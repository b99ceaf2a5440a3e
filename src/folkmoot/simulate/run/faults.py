"""What goes wrong in a world, and when: drawn from its seed, and over at some time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.state import Phase
from folkmoot.simulate.loop import Node

if TYPE_CHECKING:
    from folkmoot.simulate.run.world import RunWorld

LENGTHS = (6_000, 12_000, 20_000, 30_000)  # milliseconds until nothing goes wrong any more


def weather(world: RunWorld) -> None:
    """How bad the network is, from now on."""
    random, network = world.loop.random, world.network
    network.loss = random.choice((0.0, 0.02, 0.1, 0.3))
    network.duplication = random.choice((0.0, 0.05, 0.3))
    network.latency = random.choice(((5, 60), (5, 600), (200, 2500)))


def crash(world: RunWorld) -> None:
    """A client loses its memory, and comes back a while later."""
    client = world.loop.random.choice(world.clients)
    client.crash()
    world.loop.after(world.loop.random.uniform(200, 15_000), client.restart)


def freeze(world: RunWorld) -> None:
    """A client stands still, and goes on as if nothing had happened."""
    client = world.loop.random.choice(world.clients)
    client.freeze(world.loop.random.uniform(500, 12_000))


def withdraw(world: RunWorld) -> None:
    """Some clients, perhaps all, say goodbye at once; they join again with their next beat."""
    random = world.loop.random
    count = random.choice((1, 1, 2, len(world.clients)))
    for client in random.sample(world.clients, min(count, len(world.clients))):
        if client.up:
            client.submit(m.Withdraw(client.id))


def partition(world: RunWorld) -> None:
    """The network falls into two parts, for a while."""
    random = world.loop.random
    nodes: list[Node] = [*world.clients, world.shell]
    world.network.cut(random.sample(nodes, random.randint(1, len(nodes) - 1)))
    world.loop.after(random.uniform(500, 12_000), world.network.cut, [])


def coordinator_crash(world: RunWorld) -> None:
    """The coordinator dies: now, or between journalling a new phase and telling anyone."""
    random, shell = world.loop.random, world.shell
    if random.random() < 0.5:
        shell.crash()
    else:
        shell.die_before_sending = True
    world.loop.after(random.uniform(100, 6000), shell.restart)


def coordinator_freeze(world: RunWorld) -> None:
    world.shell.freeze(world.loop.random.uniform(500, 6000))


def join_storm(world: RunWorld) -> None:
    """Many join at once and are never heard of again."""
    random = world.loop.random
    for _ in range(random.randint(1, 6)):
        ghost = random.randbytes(32)
        claim = world.audit.state.model_hash if random.random() < 0.3 else b""
        if world.shell.up:
            world.shell.submit(m.Join(ghost, world.audit.run.run_id, claim))


def owner(world: RunWorld) -> None:
    """The owner pauses; later resumes, perhaps with another configuration."""
    if world.shell.up:
        world.shell.submit(m.Pause())
    world.loop.after(world.loop.random.uniform(500, 15_000), resume, world)


def resume(world: RunWorld) -> None:
    random, shell = world.loop.random, world.shell
    if not shell.up:
        return
    state = world.audit.state
    if state.phase is Phase.Paused and random.random() < 0.5:
        more = state.run.config.total_steps + random.randint(0, 2)
        config = replace(
            state.run.config,
            total_steps=random.choice((more, more, max(state.progress.step, 1))),
            delay=random.randint(0, 2),
            work_by_speed=random.random() < 0.5,
            global_batch_size_start=random.randint(3, 9),
            global_batch_size_end=None,
        )
        shell.submit(m.Update(replace(state.run, config=config)))
    shell.submit(m.Resume())


def extend(world: RunWorld) -> None:
    """The owner wants more steps, which counts only while the run is halted."""
    if world.shell.up:
        run = world.audit.state.run
        config = replace(run.config, total_steps=run.config.total_steps + 1)
        world.shell.submit(m.Update(replace(run, config=config)))
        world.loop.after(2000, resume, world)


FAULTS: dict[str, Callable[[RunWorld], None]] = {
    "weather": weather,
    "crash": crash,
    "freeze": freeze,
    "withdraw": withdraw,
    "partition": partition,
    "coordinator crash": coordinator_crash,
    "coordinator freeze": coordinator_freeze,
    "join storm": join_storm,
    "owner": owner,
    "extend": extend,
}


def plan(world: RunWorld) -> None:
    """Choose what kinds of fault this world has, and how often each strikes."""
    random = world.loop.random
    world.faults_end = random.choice(LENGTHS)
    kinds = random.sample(sorted(FAULTS), random.choice((0, 1, 2, 3, 4, len(FAULTS))))
    for kind in kinds:
        for _ in range(random.randint(1, 4)):
            world.loop.at(random.randrange(world.faults_end), FAULTS[kind], world)
    world.loop.at(world.faults_end, stop, world)


def stop(world: RunWorld) -> None:
    """From here on everything works and everyone is honest."""
    world.network.heal()
    for node in (*world.clients, world.shell):
        node.frozen_until = 0
        node.rate = 1.0
        node.restart()
    for client in world.clients:
        client.reform()
    world.shell.die_before_sending = False
    if world.audit.state.pause_wanted:
        world.shell.submit(m.Resume())
    world.calm = True
