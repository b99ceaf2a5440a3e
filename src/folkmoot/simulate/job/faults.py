"""What goes wrong in the world of a job besides what can in every world.

There a crash is the loss of a host with all its processes, and a coordinator is the master.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from folkmoot.core.job import messages as m
from folkmoot.simulate.faults import FAULTS, Faults
from folkmoot.simulate.job.process import SimulatedProcess

if TYPE_CHECKING:
    from folkmoot.simulate.job.world import JobWorld


def _some(world: JobWorld) -> list[SimulatedProcess]:
    """A few processes: most often one."""
    random = world.loop.random
    there = [p for host in world.nodes if host.up for p in host.processes.values()]
    return random.sample(there, min(len(there), random.choice((1, 1, 1, 2, 3))))


def death(world: JobWorld) -> None:
    for process in _some(world):
        process.die()


def error(world: JobWorld) -> None:
    for process in _some(world):
        if process.generation:
            process.err()


def hang(world: JobWorld) -> None:
    for process in _some(world):
        process.hang()


def death_after_death(world: JobWorld) -> None:
    """One dies; a while later whoever took its place does."""
    for process in _some(world):
        process.die()
        world.loop.after(world.lasting(500, 3_000), _die_again, world, process.actor)


def massacre(world: JobWorld) -> None:
    """A role dies, one shortly after the other, and their ends are told in any order."""
    world.network.latency = (5, 600)
    there = [p for host in world.nodes for p in host.processes.values()]
    # Where one's failure reaches the others, it matters who was first.
    roles = world.audit.state.spec.roles
    wide = [p for p in there if p.role in roles and roles[p.role].domain != "worker"]
    if chosen := wide or there:
        role = world.loop.random.choice(chosen).role
        for process in there:
            if process.role == role:
                world.loop.after(world.lasting(0, 500), process.die)


def _die_again(world: JobWorld, actor: str) -> None:
    for host in world.nodes:
        if host.up and actor in host.processes:
            host.processes[actor].die()


def unfit(world: JobWorld) -> None:
    """From now on checks may find workers unfit."""
    for host in world.nodes:
        host.unfit = 0.3


def scarcity(world: JobWorld) -> None:
    """From now on elastic roles get only the places they need."""
    world.coordinator.scarce = True


def scale(world: JobWorld) -> None:
    random, state = world.loop.random, world.audit.state
    role = random.choice(sorted(state.roles))
    world.coordinator.submit(m.ScaleAsked(role, random.randint(0, state.roles[role].total + 2)))


def stop(world: JobWorld) -> None:
    if world.loop.chance(0.4):
        world.coordinator.submit(m.StopAsked())


JOB_FAULTS: Faults = {
    **FAULTS,
    "death": death,
    "death after death": death_after_death,
    "massacre": massacre,
    "error": error,
    "hang": hang,
    "unfit": unfit,
    "scarcity": scarcity,
    "scale": scale,
    "stop": stop,
}
