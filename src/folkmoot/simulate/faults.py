"""What can go wrong in any world, and when: drawn from its seed, and over at some time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from folkmoot.core.machine import Effect, StateChanged
from folkmoot.simulate.node import Node

if TYPE_CHECKING:
    from folkmoot.simulate.world import World

Faults = dict[str, Callable[[Any], None]]


def weather(world: World) -> None:
    """How bad the network is, from now on: it loses, doubles, delays and reorders."""
    random, network = world.loop.random, world.network
    network.loss = random.choice((0.0, 0.02, 0.1, 0.3))
    network.duplication = random.choice((0.0, 0.05, 0.3))
    network.latency = random.choice(((5, 60), (5, 600), (200, 2500)))


def crash(world: World) -> None:
    """A node loses its memory, and comes back a while later."""
    world.loop.random.choice(world.nodes).crash(world.lasting(200, 15_000))


def freeze(world: World) -> None:
    """A node stands still, and goes on as if nothing had happened."""
    world.loop.random.choice(world.nodes).freeze(world.lasting(500, 12_000))


def partition(world: World) -> None:
    """The network falls into two parts, for a while."""
    random = world.loop.random
    nodes: list[Node] = [*world.nodes, world.coordinator]
    world.network.cut(random.sample(nodes, random.randint(1, len(nodes) - 1)))
    world.loop.after(world.lasting(500, 12_000), world.network.cut, [])


def coordinator_crash(world: World) -> None:
    """The coordinator dies: now, or between recording something and acting on it."""
    pause = world.lasting(100, 6000)
    if world.loop.chance(0.5):
        world.coordinator.crash(pause)
    else:
        world.coordinator.crash_before = (world.loop.random.choice((Effect, StateChanged)), pause)


def coordinator_freeze(world: World) -> None:
    world.coordinator.freeze(world.lasting(500, 6000))


FAULTS: Faults = {
    "weather": weather,
    "crash": crash,
    "freeze": freeze,
    "partition": partition,
    "coordinator crash": coordinator_crash,
    "coordinator freeze": coordinator_freeze,
}


def plan(world: World) -> None:
    """Choose what kinds of fault this world has, and how often each strikes."""
    random, faults = world.loop.random, world.faults
    if random.random() < 0.3:
        for node in world.nodes:
            node.rate = random.uniform(0.7, 1.4)
    world.faults_end = random.choice(world.lengths)
    kinds = random.sample(sorted(faults), random.choice((0, 1, 2, 3, 4, len(faults))))
    for kind in kinds:
        for _ in range(random.randint(1, world.strikes)):
            world.loop.at(random.randrange(world.faults_end), faults[kind], world)
    world.loop.at(world.faults_end, stop, world)


def stop(world: World) -> None:
    """From here on everything works and everyone is honest."""
    world.network.heal()
    world.coordinator.crash_before = None
    for node in (*world.nodes, world.coordinator):
        node.frozen_until = min(node.frozen_until, world.loop.now)
        node.rate = 1.0
        node.restart()
        node.reform()
    world.calm = True
    world.on_calm()
