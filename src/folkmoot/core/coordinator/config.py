"""What the owner of a run decides: `run.toml` (also read as `state.toml`).

Times are in seconds. Everything has a default except what only the owner can know.
"""

import re
from collections.abc import Iterator
from typing import Literal

import msgspec

from folkmoot.core import data_config, model_config
from folkmoot.core.config import Broken, all_texts, decode, settle_floats
from folkmoot.core.method_config import CustomConfig, DistroConfig, MethodConfig
from folkmoot.core.quorum import MAX_WITNESSES
from folkmoot.core.schedule import Constant, Schedule

RUN_ID_MAX = 64
RUN_ID_RULE = (
    f"must be a name of 1 to {RUN_ID_MAX} letters, digits, '.', '-' and '_' that begins with a"
    " letter or a digit"
)
LOCATION_MAX = 1024
_PART = r"(data|held_out|tokenizer):[0-9a-f]{32}"
_FINGERPRINT = re.compile(rf"{_PART}( {_PART}){{0,2}}")
# What moves a terminal's cursor: whoever joins is shown paths and names.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
MAX_DELAY = 2
CLIENTS_MAX = 65_535
# Longer than any phase or epoch may be: 46 days, which is what a client's vital signs can tell.
SECONDS_MAX = 4_000_000
TOKENS_MAX = 2**60


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a run moves: who must be there, how long each phase may last, how much is trained."""

    total_steps: int
    # Members.
    min_clients: int = 1
    init_min_clients: int | None = None  # to begin an epoch; min_clients when not set
    max_clients: int = 10_000
    # Places of an epoch for newcomers, in per cent of the clients there that have proven
    # themselves by work; 0 is no limit, for runs that know whom they let in.
    newcomers_percent: int = 50
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
    # Results that are audited in a round: per cent of as many as there are witnesses.
    verification_percent: int = 0
    # Whether witnesses compare results, and attest none that nobody can have trained.
    screening: bool = False
    # For how many epochs a client stays out whose results were screened, or failed audits, again
    # and again.
    ejection_epochs: int = 10
    # A client that is silent for this long has dropped.
    health_check_timeout: float = 60.0
    # Within an epoch the model is stored after so many steps, or so many seconds; 0 is never.
    checkpoint_steps: int = 0
    checkpoint_time: float = 0.0
    # Results of round h are attested in round h + delay and applied when that round ends.
    delay: int = 1
    # Whether faster clients get more of a round's batch.
    work_by_speed: bool = True

    def __post_init__(self) -> None:
        settle_floats(self)

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
            if not 0 < getattr(self, name) < SECONDS_MAX:
                yield Broken(name, f"must be more than 0 and less than {SECONDS_MAX:,} seconds")
        for name in ("warmup_time", "waiting_for_members_extra_time", "checkpoint_time"):
            if not 0 <= getattr(self, name) < SECONDS_MAX:
                yield Broken(name, f"must be 0 or more, and less than {SECONDS_MAX:,} seconds")
        if self.rounds_per_epoch is not None:
            yield from self._rounds(self.rounds_per_epoch)
            return
        for name in ("warmup_time", "max_round_train_time"):
            if getattr(self, name) >= self.epoch_time > 0:
                yield Broken(name, f"must be less than epoch_time ({self.epoch_time:g} s)")

    def _rounds(self, rounds: int) -> Iterator[Broken]:
        longest = self.max_round_train_time + self.round_witness_time
        if not 1 <= rounds < 2**32:
            yield Broken("rounds_per_epoch", "must be 1 or more, or left out")
        elif not self.warmup_time + rounds * longest < SECONDS_MAX:
            yield Broken(
                "rounds_per_epoch",
                f"rounds of up to {longest:g} s (max_round_train_time and round_witness_time)"
                f" must fit into {SECONDS_MAX:,} seconds",
            )

    def _members(self) -> Iterator[Broken]:
        if self.min_clients < 1:
            yield Broken("min_clients", "must be 1 or more")
        if not 1 <= self.max_clients <= CLIENTS_MAX:
            yield Broken("max_clients", f"must be from 1 to {CLIENTS_MAX:,}")
        if self.clients_to_begin < self.min_clients:
            yield Broken("init_min_clients", f"must be min_clients ({self.min_clients}) or more")
        if self.clients_to_begin > self.max_clients:
            yield Broken(
                "min_clients" if self.init_min_clients is None else "init_min_clients",
                f"must not exceed max_clients ({self.max_clients})",
            )
        if not 0 <= self.newcomers_percent <= 10_000:
            yield Broken("newcomers_percent", "must be from 0 (no limit) to 10,000")
        if not 0 <= self.witness_nodes <= MAX_WITNESSES:
            yield Broken("witness_nodes", f"must be from 0 (everyone) to {MAX_WITNESSES}")
        elif self.witness_nodes > self.min_clients:
            yield Broken("witness_nodes", f"must not exceed min_clients ({self.min_clients})")
        if not 0 <= self.ejection_epochs < 2**31:
            yield Broken("ejection_epochs", "must be 0 or more")
        if not 0 <= self.verification_percent <= 100:
            yield Broken("verification_percent", "must be from 0 (no audits) to 100")

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
        if not 0 <= self.checkpoint_steps < 2**32:
            yield Broken("checkpoint_steps", "must be 0 (never) or more")
        if not 0 <= self.delay <= MAX_DELAY:
            yield Broken("delay", f"must be from 0 to {MAX_DELAY} rounds")


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What a run trains, on what, and how its members combine what they learn."""

    max_seq_len: int = 512
    # The checkpoint the run begins with; with none, everyone initialises the model from `seed`.
    start: str = ""
    seed: int = 0
    # Where checkpoints are kept (a folder, s3://…, gs://…, az://…, hf://…). With none, the run
    # keeps nothing and can only be handed on from client to client.
    checkpoint: str = ""
    # How many agreed checkpoints are kept there, beside the one being stored; 0 is all.
    keep_checkpoints: int = 0
    architecture: model_config.ArchitectureConfig = model_config.GptConfig()
    data: data_config.SourceConfig | None = None
    held_out: data_config.SourceConfig | None = (
        None  # for evaluation; with none there is no evaluation
    )
    tokenizer: str = ""  # stored with checkpoints: "bytes" or a file; none for prepared tokens
    # Of data, held-out data and tokenizer, checked by who joins. Filled in where the data is.
    fingerprint: str = ""
    lr: Schedule = Constant(base_lr=1e-3)
    method: MethodConfig = DistroConfig()
    # Sequences that go through the model at once; 0 is all of a client's share.
    micro_batch: int = 0
    precision: Literal["fp32", "bf16"] = "fp32"

    def rules(self) -> Iterator[Broken]:
        if not 1 <= self.max_seq_len < 2**31:
            yield Broken("max_seq_len", "must be 1 or more")
        if self.micro_batch < 0:
            yield Broken("micro_batch", "must be 0 (all at once) or more")
        if not 0 <= self.keep_checkpoints < 2**31:
            yield Broken("keep_checkpoints", "must be 0 (all of them) or more")
        if not 0 <= self.seed < 2**63:
            yield Broken("seed", "must be 0 or more")
        if self.fingerprint and not _FINGERPRINT.fullmatch(self.fingerprint):
            yield Broken("fingerprint", "must be what `folkmoot data fingerprint run.toml` prints")
        for name in ("start", "checkpoint"):
            if len(getattr(self, name)) > LOCATION_MAX:
                yield Broken(name, f"must have at most {LOCATION_MAX} characters")


def is_run_id(name: str) -> bool:
    """Folders are named after it: it must be a plain name, whoever chose it."""
    return re.fullmatch(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{RUN_ID_MAX - 1}}}", name) is not None


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A whole `run.toml`."""

    run_id: str
    config: CoordinatorConfig
    model: Model = Model()

    def rules(self) -> Iterator[Broken]:
        if not is_run_id(self.run_id):
            yield Broken("run_id", RUN_ID_RULE)
        steps, size = self.config.total_steps, self.config.batch_size_end
        if steps * size * self.model.max_seq_len >= TOKENS_MAX:
            yield Broken("config", "total_steps of such batches are 2^60 tokens or more")
        for name, text in all_texts(self.model):
            if _CONTROL.search(text):
                yield Broken("model", f"{name} must have no control characters")
        yield from self._delay()

    def _delay(self) -> Iterator[Broken]:
        """The run's delay is the method's, whether or not the file repeats it there."""
        method = self.model.method
        if isinstance(method, DistroConfig):
            if method.delay not in (self.config.delay, DistroConfig().delay):
                yield Broken("model", f"method.delay must be config.delay ({self.config.delay})")
        elif self.config.delay and not isinstance(method, CustomConfig):
            kind = type(method).__name__
            yield Broken("config", f"delay must be 0: {kind} learns from a round before the next")


def decode_run(text: str, name: str = "run.toml") -> Run:
    """The run that a file describes, or a `ConfigError` that lists all its problems."""
    return decode(text, Run, name)
