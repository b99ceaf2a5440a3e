"""Which runs the program can keep, and the numbers that it needs of one.

The program follows `core/coordinator` exactly for runs that fit an account and a transaction. A run
that needs more is refused here with a sentence, and by the program as BadConfig.
"""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from folkmoot.authority.solana import layout
from folkmoot.core.config import Broken
from folkmoot.core.coordinator.conditions import ms
from folkmoot.core.coordinator.config import CoordinatorConfig, Run
from folkmoot.core.coordinator.machine import encode

RAMP_MAX = 2**61
# What the program reads. A key that is in neither must keep the value it has by default.
FOLLOWED = frozenset({
    "total_steps", "min_clients", "init_min_clients", "max_clients", "newcomers_percent",
    "waiting_for_members_extra_time", "warmup_time", "max_round_train_time", "round_witness_time",
    "cooldown_time", "epoch_time", "rounds_per_epoch", "global_batch_size_start",
    "global_batch_size_end", "global_batch_size_warmup_tokens", "witness_nodes",
    "health_check_timeout", "delay", "work_by_speed",
})  # fmt: skip
# Rules of the core that the program leaves out: what the key must be, and why.
LEFT_OUT: dict[str, tuple[Any, str]] = {
    "verification_percent": (0, "the program elects no verifiers"),
    "checkpoint_steps": (0, "the program has the model stored between epochs only"),
    "checkpoint_time": (0.0, "the program has the model stored between epochs only"),
    "screening": (False, "the program keeps no marks"),
    "ejection_epochs": (10, "the program ejects nobody"),
}
_TIMES = {
    "waiting_time": "waiting_for_members_extra_time",
    "warmup_time": "warmup_time",
    "train_time": "max_round_train_time",
    "witness_time": "round_witness_time",
    "cooldown_time": "cooldown_time",
    "epoch_time": "epoch_time",
    "health_timeout": "health_check_timeout",
}
_DEFAULT_MAX = CoordinatorConfig(total_steps=1).max_clients
_MAY_BE_ZERO = {"waiting_time", "warmup_time"}


def misfits(run: Run) -> Iterator[Broken]:
    """Why the program cannot keep this run; a run that breaks the core's rules is none of these."""
    config, model = run.config, run.model
    for name, (value, why) in LEFT_OUT.items():
        if getattr(config, name) != value:
            yield Broken(f"config.{name}", f"must be {value!r} on Solana: {why}")
    if config.max_clients > layout.CLIENTS:
        yield Broken("config.max_clients", f"must be at most {layout.CLIENTS} on Solana")
    for field, name in _TIMES.items():
        if field not in _MAY_BE_ZERO and ms(getattr(config, name)) < 1:
            yield Broken(f"config.{name}", "must be a millisecond or more on Solana")
    ramp = config.batch_size_end - config.global_batch_size_start
    if ramp * config.global_batch_size_warmup_tokens > RAMP_MAX:
        yield Broken(
            "config.global_batch_size_warmup_tokens",
            "times the growth of the batch must be at most 2^61 on Solana",
        )
    for name, most in (("checkpoint", layout.ROOT), ("start", layout.LOCATION)):
        if len(getattr(model, name).encode()) > most:
            yield Broken(f"model.{name}", f"must have at most {most} bytes on Solana")
    if len(encode(run)) > layout.RUN_FILE:
        yield Broken("model", f"the whole run must fit into {layout.RUN_FILE} bytes on Solana")


def check(run: Run) -> None:
    """Raise a `ValueError` that names everything that keeps the run off the chain."""
    found = [f"{broken.field} {broken.reason}" for broken in misfits(run)]
    if found:
        raise ValueError(f"run '{run.run_id}' does not fit a Solana account: {'; '.join(found)}")


def fitted(run: Run) -> Run:
    """The run, with as many clients as the program can keep where its owner names no limit."""
    if run.config.max_clients != _DEFAULT_MAX:
        return run
    return replace(run, config=replace(run.config, max_clients=layout.CLIENTS))


def numbers(run: Run, points_per_epoch: int = 0) -> np.ndarray[Any, Any]:
    """The configuration as the program reads it: one `layout.CONFIG`."""
    config, model = run.config, run.model
    made = np.zeros((), layout.CONFIG)
    for field, name in _TIMES.items():
        made[field] = ms(getattr(config, name))
    made["warmup_tokens"] = config.global_batch_size_warmup_tokens
    made["newcomers_percent"] = config.newcomers_percent
    made["points_per_epoch"] = points_per_epoch
    made["total_steps"] = config.total_steps
    made["rounds_per_epoch"] = config.rounds_per_epoch or 0
    made["batch_start"] = config.global_batch_size_start
    made["batch_end"] = config.batch_size_end
    made["max_seq_len"] = model.max_seq_len
    made["min_clients"] = config.min_clients
    made["clients_to_begin"] = config.clients_to_begin
    made["max_clients"] = config.max_clients
    made["witness_nodes"] = config.witness_nodes
    made["delay"] = config.delay
    made["work_by_speed"] = config.work_by_speed
    for field, text in (("root", model.checkpoint), ("start", model.start)):
        put_bytes(made, field, text.encode())
        made[f"{field}_len"] = len(text.encode())
    file = encode(run)
    made["run_len"] = len(file)
    put_bytes(made, "run_hash", sha256(file).digest())
    put_bytes(made, "made_of", _hash(
        model.architecture, model.start, model.seed, model.max_seq_len, type(model.method).__name__
    ))  # fmt: skip
    put_bytes(made, "computed_with", _hash(model))
    return made


def put_bytes(record: Any, field: str, value: bytes) -> None:
    """Write bytes to the beginning of a field; the rest stays zero."""
    record[field][: len(value)] = np.frombuffer(value, np.uint8)


def _hash(*parts: Any) -> bytes:
    return sha256(msgspec.json.encode(parts, order="deterministic")).digest()
