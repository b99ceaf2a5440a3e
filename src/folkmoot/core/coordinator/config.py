"""What the owner of a run decides: `run.toml` (also read as `state.toml`).

Times are in seconds. Everything has a default except what only the owner can know.
"""

from collections.abc import Iterator

import msgspec

from folkmoot.core.config import Broken, decode
from folkmoot.core.quorum import MAX_WITNESSES
from folkmoot.core.schedule import Constant, Schedule

RUN_ID_MAX = 64
LOCATION_MAX = 1024
MAX_DELAY = 2


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a run moves: who must be there, how long each phase may last, how much is trained."""

    total_steps: int
    # Members.
    min_clients: int = 1
    init_min_clients: int | None = None  # to begin an epoch; min_clients when not set
    max_clients: int = 10_000
    # Phases, in seconds.
    waiting_for_members_extra_time: float = 0.0
    warmup_time: float = 120.0
    max_round_train_time: float = 120.0
    round_witness_time: float = 5.0
    cooldown_time: float = 120.0
    # An epoch ends after this time, or after this many rounds of training when that is set.
    epoch_time: float = 1800.0
    rounds_per_epoch: int | None = None
    # Sequences trained in a round: a ramp from start to end over the first tokens.
    global_batch_size_start: int = 16
    global_batch_size_end: int | None = None  # start when not set
    global_batch_size_warmup_tokens: int = 0
    # Witnesses of a round; 0 is everyone, up to 32.
    witness_nodes: int = 0
    verification_percent: int = 0
    # A client that is silent for this long has dropped.
    health_check_timeout: float = 60.0
    # Results of round h are attested in round h + delay and applied when that round ends.
    delay: int = 1
    # Whether faster clients get more of a round's batch.
    work_by_speed: bool = True

    @property
    def clients_to_begin(self) -> int:
        return self.min_clients if self.init_min_clients is None else self.init_min_clients

    @property
    def batch_size_end(self) -> int:
        end = self.global_batch_size_end
        return self.global_batch_size_start if end is None else end

    def rules(self) -> Iterator[Broken]:
        yield from self._times()
        yield from self._members()
        yield from self._work()

    def _times(self) -> Iterator[Broken]:
        for name in (
            "epoch_time",
            "max_round_train_time",
            "round_witness_time",
            "cooldown_time",
            "health_check_timeout",
        ):
            if not 0 < getattr(self, name) < 4e6:
                yield Broken(name, "must be more than 0 and less than 4,000,000 seconds")
        for name in ("warmup_time", "waiting_for_members_extra_time"):
            if not 0 <= getattr(self, name) < 4e6:
                yield Broken(name, "must be from 0 to 4,000,000 seconds")
        if self.rounds_per_epoch is not None:
            if self.rounds_per_epoch < 1:
                yield Broken("rounds_per_epoch", "must be 1 or more, or left out")
            return
        for name in ("warmup_time", "max_round_train_time"):
            if getattr(self, name) >= self.epoch_time:
                yield Broken(name, f"must be less than epoch_time ({self.epoch_time:g} s)")

    def _members(self) -> Iterator[Broken]:
        if self.min_clients < 1:
            yield Broken("min_clients", "must be 1 or more")
        if not 1 <= self.max_clients <= 65_535:
            yield Broken("max_clients", "must be from 1 to 65,535")
        if self.clients_to_begin < self.min_clients:
            yield Broken("init_min_clients", f"must be min_clients ({self.min_clients}) or more")
        if self.clients_to_begin > self.max_clients:
            yield Broken(
                "min_clients" if self.init_min_clients is None else "init_min_clients",
                f"must not exceed max_clients ({self.max_clients})",
            )
        if not 0 <= self.witness_nodes <= MAX_WITNESSES:
            yield Broken("witness_nodes", f"must be from 0 (everyone) to {MAX_WITNESSES}")
        elif self.witness_nodes > self.min_clients:
            yield Broken("witness_nodes", f"must not exceed min_clients ({self.min_clients})")
        if self.verification_percent != 0:
            yield Broken("verification_percent", "must be 0: every client of a run trains")

    def _work(self) -> Iterator[Broken]:
        if not 1 <= self.total_steps < 2**32:
            yield Broken("total_steps", "must be 1 or more")
        if not 1 <= self.global_batch_size_start < 2**31:
            yield Broken("global_batch_size_start", "must be 1 or more")
        elif not self.global_batch_size_start <= self.batch_size_end < 2**31:
            yield Broken(
                "global_batch_size_end",
                f"must be global_batch_size_start ({self.global_batch_size_start}) or more",
            )
        if not 0 <= self.global_batch_size_warmup_tokens < 2**53:
            yield Broken("global_batch_size_warmup_tokens", "must be 0 or more")
        if not 0 <= self.delay <= MAX_DELAY:
            yield Broken("delay", f"must be from 0 to {MAX_DELAY} rounds")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What a run trains, as far as its coordinator needs to know."""

    max_seq_len: int = 512
    # The checkpoint the run begins with; with none, everyone initialises the model from its seed.
    start: str = ""
    # Where checkpoints are kept (a folder, s3://…, gs://…, az://…, hf://…). With none, the run
    # keeps nothing and can only be handed on from client to client.
    checkpoint: str = ""
    lr: Schedule = Constant(base_lr=1e-3)

    def rules(self) -> Iterator[Broken]:
        if not 1 <= self.max_seq_len < 2**31:
            yield Broken("max_seq_len", "must be 1 or more")
        for name in ("start", "checkpoint"):
            if len(getattr(self, name)) > LOCATION_MAX:
                yield Broken(name, f"must have at most {LOCATION_MAX} characters")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A whole `run.toml`."""

    run_id: str
    config: CoordinatorConfig
    model: Model = Model()

    def rules(self) -> Iterator[Broken]:
        if not 1 <= len(self.run_id) <= RUN_ID_MAX:
            yield Broken("run_id", f"must have 1 to {RUN_ID_MAX} characters")

    def all_rules(self) -> Iterator[Broken]:
        """The broken rules of the file and all its tables."""
        yield from self.rules()
        yield from self.config.rules()
        yield from self.model.rules()


def decode_run(text: str, name: str = "run.toml") -> Run:
    """The run that a file describes, or a `ConfigError` that lists all its problems."""
    return decode(text, Run, name)
