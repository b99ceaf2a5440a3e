"""How long DisTrO takes beside an AdamW step, a plain einsum version, and a training round.

    python benchmarks/distro_speed.py [--quick] [--sizes 10,100] [--threads 1,2]

Everything is measured in one run, contenders in turn, the best of several turns each; what counts
are the ratios. `DisTrO` is compressing and packing one contribution, and checking, summing,
inverting and stepping along 3 of them. Clearing and clipping gradients, which any optimizer needs
beside its step, and the look-ahead of a delayed run are counted apart.
`--clock cpu` counts processor time instead of time on the wall: for one thread on a busy machine.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace

import torch
from torch import nn

import results
from einsum_distro import EinsumDistro
from folkmoot.core.method_config import DistroConfig
from folkmoot.core.model_config import GptConfig
from folkmoot.learning.checkpoints.state_hash import state_hash
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.methods.distro import DistroMethod
from folkmoot.learning.methods.distro.wire import payload_size
from folkmoot.learning.models import build

MODELS = {
    10: GptConfig(vocab_size=4096, layers=8, heads=4, width=256, hidden=1024, context=512),
    100: GptConfig(vocab_size=16384, layers=11, heads=12, width=768, hidden=2560, context=512),
}
LR = 1e-4
OURS: dict[str, dict[str, object]] = {
    "DisTrO by default": {},
    "DisTrO k = 8": {"k": 8},
    "DisTrO sign": {"treatment": "sign"},
    "DisTrO sign, k = 8": {"treatment": "sign", "k": 8},
    "DisTrO adam": {"treatment": "adam"},
}
now = time.perf_counter


def model_of(size: int) -> nn.Module:
    return build(MODELS[size], seed=0, device="cpu")


def count(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


class OurSide:
    """One client; `seconds()` is a round's exchange, `beside` what it did apart from that."""

    def __init__(self, size: int, peers: int, **config: object) -> None:
        self.model = model_of(size)
        self.method = DistroMethod(self.model, DistroConfig(**config))  # type: ignore[arg-type]
        self.peers, self.step = peers, 0
        self.beside: dict[str, float] = {}
        self._time("preparing", self.method.flat, "clear_grads")
        self._time("preparing", self.method, "_clip_scale")
        self.method.backend = SimpleNamespace(**vars(self.method.backend))
        for part in ("back_up", "look_ahead", "restore"):
            self._time("looking ahead", self.method.backend, part)
        self.grads = torch.randn_like(self.method.flat.grads)
        self.others = [self._payload() for _ in range(peers - 1)]
        self.before = [self._contribution() for _ in range(self.method.delay)]

    def _time(self, what: str, owner: object, name: str) -> None:
        plain = getattr(owner, name)

        def timed(*arguments: object) -> object:
            start = now()
            result = plain(*arguments)
            self.beside[what] = self.beside.get(what, 0.0) + now() - start
            return result

        setattr(owner, name, timed)

    def _closure(self, _: int) -> float:
        start = now()
        self.method.flat.grads.copy_(self.grads)
        self.beside["training"] = now() - start
        return 0.0

    def _contribution(self) -> bytes:
        self.step += 1
        return self.method.contribute(self._closure, self.step, LR).payload

    def _payload(self) -> bytes:
        """What another client might say: its gradient is not ours."""
        self.grads = self.grads.roll(7919)
        made = self._contribution()
        self.method.apply([made], self.step, LR)
        return made

    def seconds(self) -> float:
        self.beside = {}
        start = now()
        self.before.append(self._contribution())
        due = self.before.pop(0)
        self.method.apply([due, *self.others], self.step - self.method.delay, LR)
        return now() - start - sum(self.beside.values())

    def looking_ahead(self) -> float:
        self.seconds()
        return self.beside["looking ahead"]

    def preparing(self) -> float:
        self.seconds()
        return self.beside["preparing"]


def adamw(size: int) -> Callable[[], float]:
    model = model_of(size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    for p in model.parameters():
        p.grad = torch.randn_like(p)

    def seconds() -> float:
        start = now()
        optimizer.step()
        return now() - start

    return seconds


def einsum(size: int, peers: int) -> Callable[[], float]:
    model = model_of(size)
    side = EinsumDistro(list(model.parameters()), DistroConfig().k, 0.95)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    others = [side.compress() for _ in range(peers - 1)]

    def seconds() -> float:
        start = now()
        side.apply([side.compress(), *others], LR)
        return now() - start

    return seconds


def training(size: int, tokens: int) -> Callable[[], float]:
    model = model_of(size)
    context = MODELS[size].context
    draw = torch.Generator().manual_seed(0)
    shape = (tokens // context, context + 1)
    batch = torch.randint(0, MODELS[size].vocab_size, shape, generator=draw).numpy()

    def seconds() -> float:
        model.zero_grad()
        start = now()
        loss_and_gradients(model, batch, micro_batch=2)
        return now() - start

    return seconds


def hashing(size: int) -> Callable[[], float]:
    model = model_of(size)

    def seconds() -> float:
        start = now()
        state_hash(model)
        return now() - start

    return seconds


def best(contenders: dict[str, Callable[[], float]], turns: int) -> dict[str, float]:
    found = {name: run() for name, run in contenders.items()}
    found = dict.fromkeys(found, float("inf"))
    for _ in range(turns):
        for name, run in contenders.items():
            found[name] = min(found[name], run())
    return found


def measure(size: int, threads: int, turns: int, tokens: int) -> dict[str, float]:
    torch.set_num_threads(threads)
    gc.collect()  # what was measured before refers to itself, and is large
    plain = {name: OurSide(size, 3, delay=0, **config).seconds for name, config in OURS.items()}
    delayed = OurSide(size, 3, delay=1)
    seconds = best(
        {
            "adamw": adamw(size),
            "einsum": einsum(size, 3),
            **plain,
            "look-ahead": delayed.looking_ahead,
            "preparing": delayed.preparing,
            "two": OurSide(size, 2, delay=0).seconds,
            "thirty-two": OurSide(size, 32, delay=0).seconds,
            "hash": hashing(size),
        },
        turns,
    )
    seconds["round"] = best({"round": training(size, tokens)}, max(1, turns // 5))["round"]
    return seconds


def peak_copies(size: int, config: DistroConfig) -> float:
    """Peak memory beyond model and gradients, in copies of the model; run in its own process."""
    model = model_of(size)
    for p in model.parameters():
        p.grad = torch.randn_like(p)
    torch.set_num_threads(1)
    warm = DistroMethod(nn.Linear(64, 128), config)
    rounds(warm)
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    method = DistroMethod(model, config)
    rounds(method)
    return (resident("VmHWM") - before) * 1024 / (4 * count(model))


def rounds(method: DistroMethod) -> None:
    def closure(_: int) -> float:
        method.flat.grads.normal_()
        return 0.0

    sent = []
    for step in range(4):
        sent.append(method.contribute(closure, step, LR).payload)
        if step >= method.delay:
            method.apply([sent[step - method.delay]] * 3, step - method.delay, LR)


def resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))


def memory(size: int, delay: int) -> float:
    """In a process of its own, whose allocator gives back what is freed, so that it counts once."""
    command = [sys.executable, __file__, "--memory", str(size), str(delay)]
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072"}
    return float(subprocess.run(command, check=True, stdout=PIPE, env=environment).stdout)


def report(size: int, threads: int, s: dict[str, float], tokens: int) -> dict[str, float]:
    """Print what was measured, and give what the pages show of it."""
    n, a = count(model_of(size)), s["adamw"]
    print(
        f"\n{n / 1e6:.1f} M parameters, {threads} thread(s); AdamW step {a / n * 1e9:.2f} ns/param"
    )
    print(f"  {'':28} {'ns/param':>9} {'÷ AdamW':>9} {'÷ einsum':>9} {'of a round':>11}")
    whole = s["round"] * 4096 / tokens
    rows = [*OURS, "einsum", "look-ahead", "preparing"]
    for name in rows:
        t, share = s[name], f"{s[name] / whole:11.1%}"
        print(f"  {name:28} {t / n * 1e9:9.2f} {t / a:9.2f} {t / s['einsum']:9.2f} {share}")
    ours = s["DisTrO by default"]
    figures = {
        "AdamW, ns a parameter": a / n * 1e9,
        "exchange by default ÷ AdamW": ours / a,
        "`sign` ÷ AdamW": s["DisTrO sign"] / a,
        "`sign`, k = 8 ÷ AdamW": s["DisTrO sign, k = 8"] / a,
        "exchange by default ÷ einsum": ours / s["einsum"],
        "exchange by default, of a round, %": 100 * ours / whole,
        "look-ahead (delay > 0), of a round, %": 100 * s["look-ahead"] / whole,
        "32 peers ÷ 2 peers": s["thirty-two"] / s["two"],
        "state hash, GB/s": 4 * n / s["hash"] / 1e9,
    }
    for what in ("32 peers ÷ 2 peers", "state hash, GB/s"):
        print(f"  {what}: {figures[what]:.2f}")
    return {what: results.significant(figure) for what, figure in figures.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="10 M parameters only, few turns")
    parser.add_argument("--sizes", default="10,100")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--memory", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    options = parser.parse_args()
    global now
    now = time.process_time if options.clock == "cpu" else time.perf_counter
    if options.memory:
        size, delay = options.memory
        print(peak_copies(size, DistroConfig(delay=delay)))
        return
    columns: dict[str, dict[str, float]] = {}
    wire: dict[str, dict[str, float]] = {}
    copies: dict[str, dict[str, float]] = {}
    for size in [10] if options.quick else map(int, options.sizes.split(",")):
        name = f"{count(model_of(size)) / 1e6:.3g} M"
        turns = 3 if options.quick else 40 if size == 10 else 12
        tokens = 4096 if size == 10 else 1024
        for threads in map(int, options.threads.split(",")):
            column = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
            columns[column] = report(size, threads, measure(size, threads, turns, tokens), tokens)
        for k in (8, DistroConfig().k):
            plan = OurSide(size, 1, delay=0, k=k).method.plan
            fewer = round(4 * plan.size / payload_size(plan))
            wire.setdefault(name, {})[f"k = {k}"] = fewer
            print(f"  wire: {payload_size(plan):,} bytes a client and round, {fewer:,}× below")
        for delay in (0, 1):
            copies.setdefault(name, {})[f"delay {delay}"] = round(memory(size, delay), 2)
        print(f"  peak memory beyond model and gradients, in copies of the model: {copies[name]}")
    if options == parser.parse_args([]):
        rows = {row: {c: columns[c][row] for c in columns} for row in next(iter(columns.values()))}
        figures = {"exchange": rows, "times_below_float32": wire, "memory_copies": copies}
        results.write("distro_speed", "make bench-learning", figures)


if __name__ == "__main__":
    main()
