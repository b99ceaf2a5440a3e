"""Worlds around the machine of a run: a coordinator, clients, liars, a bad network."""

from random import Random

from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.messages import Resume
from folkmoot.simulate.audit import Violation
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.run.audit import RunAudit
from folkmoot.simulate.run.client import ClientNode
from folkmoot.simulate.run.coordinator import RunCoordinator
from folkmoot.simulate.run.faults import RUN_FAULTS
from folkmoot.simulate.run.liar import LyingClient
from folkmoot.simulate.run.mutants import MUTANTS
from folkmoot.simulate.world import World


def draw_run(loop: Loop, clients: int, honest: int) -> Run:
    """A small run, with every setting that matters drawn from the seed.

    The honest are enough for it: liars may be expelled.
    """
    random = loop.random
    fewest = random.randint(1, max(1, min(clients - 1, honest)))
    by_rounds = random.random() < 0.7
    storing = Random()  # of its own: the other draws are as they are without it
    storing.setstate(random.getstate())
    config = CoordinatorConfig(
        total_steps=random.randint(2, 9),
        min_clients=fewest,
        init_min_clients=random.choice((None, min(honest, fewest + 1))),
        max_clients=random.choice((10_000, 10_000, clients + 2)),
        waiting_for_members_extra_time=random.choice((0.0, 0.5)),
        warmup_time=random.choice((1.0, 4.0)),
        max_round_train_time=random.choice((2.0, 5.0)),
        round_witness_time=random.choice((0.5, 1.5)),
        cooldown_time=random.choice((1.0, 4.0)),
        epoch_time=random.choice((6.0, 15.0)),
        rounds_per_epoch=random.randint(1, 4) if by_rounds else None,
        global_batch_size_start=random.randint(2, 8),
        global_batch_size_end=random.choice((None, 12)),
        global_batch_size_warmup_tokens=random.choice((0, 200)),
        witness_nodes=random.choice((0, 0, random.randint(1, fewest))),
        checkpoint_steps=storing.choice((0, 0, 0, 1, 2)),
        checkpoint_time=storing.choice((0.0, 0.0, 3.0)),
        verification_percent=storing.choice((0, 50, 100)),
        health_check_timeout=random.choice((4.0, 8.0)),
        delay=random.choice((0, 1, 1, 2)),
        work_by_speed=random.random() < 0.7,
        screening=True,
    )
    checkpoint = random.choice(("", "mem://run", "mem://run"))
    return Run(run_id="world", config=config, model=Model(max_seq_len=8, checkpoint=checkpoint))


class RunWorld(World):
    audit_type = RunAudit
    mutants = MUTANTS
    faults = RUN_FAULTS
    audit: RunAudit
    coordinator: RunCoordinator
    nodes: list[ClientNode]

    def populate(self) -> None:
        random = self.loop.random
        count, liars = random.randint(3, 7), random.choice((0, 0, 1, 2, 2))
        self.audit = RunAudit(draw_run(self.loop, count, count - liars))
        self.coordinator = RunCoordinator(self.loop, self.network, self.audit)
        peers: dict[bytes, ClientNode] = {}
        for at in range(count):
            kind = LyingClient if at < liars else ClientNode
            identity = random.randbytes(32)
            peers[identity] = kind(
                self.loop, self.network, self.coordinator, self.audit, peers, identity
            )
        self.nodes = list(peers.values())

    def on_calm(self) -> None:
        if self.audit.state.pause_wanted:
            self.coordinator.submit(Resume())

    def play(self) -> None:
        super().play()
        if self.audit.state.progress.step != self.audit.state.run.config.total_steps:
            raise Violation("a_run_ends_at_its_last_step", f"at {self.audit.state.progress}")

    def progress(self) -> str:
        state = self.audit.state
        steps = f"step {state.progress.step} of {state.run.config.total_steps}"
        return f"{state.phase}, epoch {state.epoch_number}, {steps}"

    def counts(self) -> dict[str, int]:
        audit = self.audit
        return {
            "messages": len(audit.inputs),
            "rounds": sum(height > 0 for _, height in audit.canonical),
            "samples learnt": audit.samples_attested,
            "samples attested but without one agreed result": audit.samples_lost,
        }
