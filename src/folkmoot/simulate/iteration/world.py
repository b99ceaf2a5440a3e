"""Worlds of ranks around one store: they crash, freeze, are taken over, lose answers, and go on."""

from random import Random

from folkmoot.core.iteration import Rules, keys
from folkmoot.core.iteration import messages as m
from folkmoot.core.iteration.record import read_record
from folkmoot.simulate.faults import FAULTS, Faults
from folkmoot.simulate.iteration.audit import IterationAudit
from folkmoot.simulate.iteration.job import Begin, Calm
from folkmoot.simulate.iteration.mutants import WORLD_MUTANTS
from folkmoot.simulate.iteration.nodes import RankNode, StoreNode
from folkmoot.simulate.world import World


def draw_rules(random: Random) -> Rules:
    world = random.choice((1, 2, 2, 3, 3, 4, 5))
    return Rules(
        world,
        min_ranks=random.choice((1, 1, 1, min(2, world))),
        heartbeat_interval=2_000,
        heartbeat_timeout=random.choice((2_800, 4_500)),
        join_timeout=random.choice((0, 2_000, 8_000)),
        straggler_timeout=random.choice((0, 0, 0, 3_000)),
    )


def takeover(world: "IterationWorld") -> None:
    """Somebody starts a rank that is alive a second time."""
    world.add(world.loop.random.randrange(world.audit.config.world)).start()


def winner_crash(world: "IterationWorld") -> None:
    """Whoever wins next dies before it has woken anybody, or is taken over in its sleep."""
    pause = world.lasting(200, 15_000)

    def die(node: RankNode) -> None:
        node.crash(pause)

    def sleep(node: RankNode) -> None:
        node.freeze(pause)
        world.add(node.rank).start()

    for node in world.nodes:
        node.on_win = world.loop.random.choice((die, sleep))


ITERATION_FAULTS: Faults = {**FAULTS, "takeover": takeover, "winner crash": winner_crash}


class IterationWorld(World):
    audit_type = IterationAudit
    mutants = WORLD_MUTANTS
    faults = ITERATION_FAULTS
    lengths = (1_500, 3_000, 4_500, 7_000)
    strikes = 3
    pace = 0.4
    patience = 120_000
    epilogue = 1_000
    audit: IterationAudit
    coordinator: StoreNode  # who holds the state here
    nodes: list[RankNode]

    def populate(self) -> None:
        self.audit = IterationAudit(draw_rules(self.loop.random))
        self.coordinator = StoreNode(self.loop, self.network, self.audit)
        self.nodes = []
        for rank in range(self.audit.config.world):
            self.add(rank)

    def add(self, rank: int) -> RankNode:
        name = f"{rank}{'abcdefghijklmnopqrstuvwxyz'[len(self.nodes) % 26]}"
        node = RankNode(self.loop, self.network, self.coordinator, rank, name)
        self.nodes.append(node)
        return node

    def on_calm(self) -> None:
        """Some ranks are gone for ever, perhaps; all others have a process."""
        for node in self.nodes:
            node.on_win = None
        rules, random = self.audit.config, self.loop.random
        alive = (
            random.randint(rules.min_ranks, rules.world) if random.random() < 0.3 else rules.world
        )
        ranks = sorted(random.sample(range(rules.world), alive))
        for rank in range(rules.world):
            nodes = [node for node in self.nodes if node.rank == rank]
            if rank not in ranks:
                for node in nodes:
                    node.end()
            elif not any(node.alive for node in nodes):
                nodes[-1].fenced = False
                nodes[-1].start()
        self.audit.submit(self.loop.now, 0, Calm(tuple(ranks)))

    def progress(self) -> str:
        job = self.audit.state
        return f"{read_record(job.store.get(keys.CONSENSUS), job.rules.world)}, goal {job.goal}"

    def counts(self) -> dict[str, int]:
        effects = self.audit.effects
        return {
            "iterations": len(self.audit.decided),
            "processes": sum(isinstance(entry.event, Begin) for entry in self.audit.inputs),
            "left out": sum(isinstance(effect, m.Excluded) for effect in effects),
            "fenced": sum(isinstance(effect, m.Stopped) for effect in effects),
        }
