"""What goes wrong in the world of a run besides what can in every world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.receive import IN_EPOCH, member
from folkmoot.core.coordinator.state import Phase, trained
from folkmoot.simulate.faults import FAULTS, Faults

CRAWLS = 30  # times slower
IDLE_EVERY = 2000  # milliseconds between two signs of life of one that does nothing else

if TYPE_CHECKING:
    from folkmoot.simulate.run.world import RunWorld


def withdraw(world: RunWorld) -> None:
    """Some clients, perhaps all, say goodbye at once; they join again when they see it."""
    random = world.loop.random
    count = random.choice((1, 1, 2, len(world.nodes)))
    for client in random.sample(world.nodes, min(count, len(world.nodes))):
        if client.up:
            client.submit(m.Withdraw(client.id))


def crawl(world: RunWorld) -> None:
    """A client that is there has hardly any of its processor, for a while."""
    client = world.loop.random.choice(world.nodes)
    usual = client.sample_time
    client.sample_time = usual * CRAWLS

    def recover() -> None:
        client.sample_time = usual

    world.loop.after(world.lasting(2000, 12_000), recover)


def hang_up(world: RunWorld) -> None:
    """Clients that are well lose their connections, or the coordinator says so."""
    for client in world.nodes:
        if world.loop.chance(0.5):
            world.coordinator.lose(client)


def join_storm(world: RunWorld) -> None:
    """Many join at once and are never heard of again."""
    random = world.loop.random
    for _ in range(random.randint(1, 6)):
        ghost = random.randbytes(32)
        claim = world.audit.state.model_hash if random.random() < 0.3 else b""
        if world.coordinator.up:
            world.coordinator.submit(m.Join(ghost, world.audit.config.run_id, claim))


def strangers(world: RunWorld) -> None:
    """Keys join, show that they live as long as the run lasts, and do nothing; some lie about being
    ready, as long as anybody lies. Who loses its place asks for one again, at once; when nobody
    lies, only in a run that has learnt who works: in any other the first to ask are served, and
    keys that outnumber its places can keep them all."""
    random = world.loop.random
    lying = random.random() < 0.5
    for _ in range(random.randint(1, 12)):
        world.loop.after(random.uniform(0, 1000), idle, world, random.randbytes(32), lying)


def idle(world: RunWorld, key: bytes, lying: bool) -> None:
    state = world.audit.state
    if state.phase is Phase.Finished:
        return
    has_place = member(state, key) is not None or state.pending.get(key) is not None
    if world.calm and not world.audit.worked and not has_place:
        return
    if world.coordinator.up:
        world.coordinator.submit(m.Join(key, world.audit.config.run_id))
        world.coordinator.submit(m.HealthCheck(key))
        if lying and not world.calm:
            world.coordinator.submit(m.Ready(key, state.epoch_number))
    world.loop.after(IDLE_EVERY, idle, world, key, lying)


def owner(world: RunWorld) -> None:
    """The owner pauses; later resumes, perhaps with another configuration."""
    if world.coordinator.up:
        world.coordinator.submit(m.Pause())
    world.loop.after(world.loop.random.uniform(500, 15_000), resume, world)


def resume(world: RunWorld) -> None:
    random, coordinator = world.loop.random, world.coordinator
    if not coordinator.up:
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
        coordinator.submit(m.Update(replace(state.run, config=config)))
    coordinator.submit(m.Resume())


def extend(world: RunWorld) -> None:
    """The owner wants more steps, whatever the run is at; or what cannot be had at this time."""
    if world.coordinator.up:
        run = world.audit.state.run
        config = replace(run.config, total_steps=run.config.total_steps + 1)
        world.coordinator.submit(m.Update(replace(run, config=config)))
        state, run = world.audit.state, world.audit.state.run
        if state.phase in IN_EPOCH:
            other = replace(run.config, delay=(run.config.delay + 1) % 3)
            world.coordinator.submit(m.Update(replace(run, config=other)))
        elif trained(state):
            model = replace(run.model, seed=run.model.seed + 1)
            world.coordinator.submit(m.Update(replace(run, model=model)))
        world.loop.after(2000, resume, world)


RUN_FAULTS: Faults = {
    **FAULTS,
    "crawl": crawl,
    "hang up": hang_up,
    "withdraw": withdraw,
    "join storm": join_storm,
    "strangers": strangers,
    "owner": owner,
    "extend": extend,
}
