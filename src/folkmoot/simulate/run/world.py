"""A world around the machine of a run: a coordinator, clients, liars, a bad network.

`simulate(seed)` plays it until the run is finished, and says what was violated, if anything.
"""

from folkmoot.core.coordinator.config import CoordinatorConfig, Model, Run
from folkmoot.core.coordinator.state import Phase
from folkmoot.simulate.loop import Loop
from folkmoot.simulate.network import Network
from folkmoot.simulate.report import Report
from folkmoot.simulate.run import faults
from folkmoot.simulate.run.audit import Audit, Input, Violation
from folkmoot.simulate.run.coordinator import Shell
from folkmoot.simulate.run.liar import Liar
from folkmoot.simulate.run.toy_client import Client
from folkmoot.simulate.transcript import Transcript

PATIENCE = 400_000  # milliseconds after the faults stopped
EVENTS_MAX = 60_000


def draw_run(loop: Loop, clients: int) -> Run:
    """A small run, with every setting that matters drawn from the seed."""
    random = loop.random
    fewest = random.randint(1, max(1, clients - 1))
    by_rounds = random.random() < 0.7
    config = CoordinatorConfig(
        total_steps=random.randint(2, 9),
        min_clients=fewest,
        init_min_clients=random.choice((None, min(clients, fewest + 1))),
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
        health_check_timeout=random.choice((4.0, 8.0)),
        delay=random.choice((0, 1, 1, 2)),
        work_by_speed=random.random() < 0.7,
    )
    checkpoint = random.choice(("", "mem://run", "mem://run"))
    return Run(run_id="world", config=config, model=Model(max_seq_len=8, checkpoint=checkpoint))


class RunWorld:
    def __init__(self, seed: int, honest: type[Client] = Client) -> None:
        self.loop = Loop(seed)
        random = self.loop.random
        count = random.randint(3, 7)
        self.audit = Audit(draw_run(self.loop, count))
        self.network = Network(self.loop)
        self.shell = Shell(self.loop, self.network, self.audit)
        self.calm = False  # whether everything works and everyone is honest by now
        self.faults_end = 0
        liars = random.choice((0, 0, 1, 2, 2))
        self.peers: dict[bytes, Client] = {}
        for at in range(count):
            kind = Liar if at < liars else honest
            identity = random.randbytes(32)
            self.peers[identity] = kind(
                self.loop, self.network, self.shell, self.audit, self.peers, identity
            )
        self.clients = list(self.peers.values())
        self._begin()

    def _begin(self) -> None:
        random = self.loop.random
        skewed = random.random() < 0.3
        for client in self.clients:
            client.rate = random.uniform(0.7, 1.4) if skewed else 1.0
            self.loop.after(random.uniform(0, 3000), client.start)
        self.shell.start()
        faults.plan(self)

    def play(self) -> None:
        """Until the run is finished and nothing more goes wrong."""
        loop, audit = self.loop, self.audit
        while not (self.calm and audit.state.phase is Phase.Finished):
            late = loop.now > self.faults_end + PATIENCE or loop.events > EVENTS_MAX
            if late or not loop.step():
                state = audit.state
                raise Violation(
                    "a_run_finishes_once_faults_stop",
                    f"{state.phase} at {loop.now} ms, epoch {state.epoch_number}, "
                    f"step {state.progress.step} of {state.run.config.total_steps}",
                )
        if audit.state.progress.step != audit.state.run.config.total_steps:
            raise Violation("a_run_ends_at_its_last_step", f"at {audit.state.progress}")


def simulate(seed: int, honest: type[Client] = Client) -> Report:
    """Play the world of a seed, with this kind of honest client."""
    world = RunWorld(seed, honest)
    violation = None
    try:
        world.play()
    except Violation as found:
        violation = found
    audit = world.audit
    counts = {
        "messages": sum(isinstance(entry, Input) for entry in audit.log),
        "rounds": sum(height > 0 for _, height in audit.canonical),
        "samples learnt": audit.samples_attested,
        "samples attested but without one agreed result": audit.samples_lost,
    }
    transcript = str(Transcript.of(audit, seed, violation)) if violation else ""
    name = str(violation) if violation else None
    return Report(seed, world.loop.events, name, transcript, counts)
