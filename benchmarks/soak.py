"""A long run with churn: whether its processes grow, and whether its rounds become slower.

    python benchmarks/soak.py [--rounds 3000] [--authority server|store] [--calm]

Four clients of a tiny model train round after round. Every few seconds one of them dies by
`kill -9` and comes back with its key, or leaves and somebody new comes for it (unless it is calm).
The server, or the store and who follows the run there, and the first two clients live all the time:
it is their memory that is looked at, without what they share with files.

The first third of the rounds warms up: caches with a bound fill, threads and the heap come to their
size. After it a line is fitted, and its slope told in bytes a round. Memory moves in steps, so that
neighbouring looks say the same: the line goes through the means of `STRETCHES` stretches, and its
uncertainty (95 %) is that of so few points.
"""

import argparse
import asyncio
import itertools
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import results
from folkmoot.authority.open import open_authority
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks
from folkmoot.runs.local_processes import LocalRun
from processes import own_memory_mb
from run_observer import Observer

CONFIG = """
run_id = "soak"
[config]
total_steps = 100000000
min_clients = 2
init_min_clients = 4
rounds_per_epoch = 200
global_batch_size_start = 4
max_round_train_time = 5
round_witness_time = 2
warmup_time = 60
cooldown_time = 30
health_check_timeout = 30
[model]
max_seq_len = 16
checkpoint = "{folder}/checkpoints"
keep_checkpoints = 1
[model.architecture]
type = "gpt"
vocab_size = 256
layers = 1
heads = 2
width = 16
context = 16
[model.data]
type = "text"
paths = ["{folder}/corpus.txt"]
[model.method]
type = "distro"
k = 4
chunk = 16
"""
CLIENTS, STEADY = 4, 2
CHURN = 15.0
LOOK = 0.5
# What a process may grow by in a round, and what may be left of the first rounds' pace.
GROWTH_GOAL, PACE_GOAL = 100, 0.9
STRETCHES = 10
# Of Student's distribution, 95 % on both sides, for the residuals of a line through so many points.
STUDENT = 2.306


class Soak:
    """A run, those of it that stay, and what was seen of them: (rounds so far, MB) of each."""

    def __init__(self, local: LocalRun, observer: Observer) -> None:
        self.local, self.observer = local, observer
        self.seen: dict[str, list[tuple[int, float]]] = {}
        self.times: list[tuple[float, int]] = []
        self.deaths = 0

    async def churn(self) -> None:
        for number in itertools.count():
            await asyncio.sleep(CHURN)
            living = [name for name, p in self.local.clients.items() if p.poll() is None]
            victim = living[STEADY + number % (len(living) - STEADY)]
            if number % 2:
                self.local.clients[victim].send_signal(signal.SIGINT)
                await asyncio.to_thread(self.local.clients[victim].wait)
                self.local.join()
            else:
                self.local.kill(victim)
                self.local.rejoin(victim)
            self.deaths += 1

    async def look(self, rounds: int) -> None:
        steady = [*self.local.keepers, *list(self.local.clients)[:STEADY]]
        told = 0
        while (done := len(self.observer.began)) < rounds:
            self.times.append((time.monotonic(), done))
            for name in steady:
                memory = own_memory_mb(self.local[name].pid)
                self.seen.setdefault(name, []).append((done, memory))
            if done >= told + 500:
                told = done
                sizes = "  ".join(f"{name} {self.seen[name][-1][1]:.1f} MB" for name in steady)
                print(f"{done:6,} rounds, {self.deaths:3} deaths; {sizes}", flush=True)
            await asyncio.sleep(LOOK)

    def growth(self, name: str) -> tuple[float, float]:
        """Bytes a round after the first third, and how uncertain that is."""
        seen = self.seen[name]
        warm = [look for look in seen if look[0] >= seen[-1][0] / 3]
        return slope([(rounds, memory * 2**20) for rounds, memory in warm])

    def pace(self) -> tuple[float, float]:
        """Rounds a second in the second third of the time, and in the last."""
        third = len(self.times) // 3
        marks = [self.times[third], self.times[2 * third], self.times[-1]]
        first, last = ((b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.pairwise(marks))
        return first, last

    def figures(self) -> dict[str, Any]:
        first, last = self.pace()
        return {
            "rounds": self.times[-1][1],
            "deaths": self.deaths,
            "rounds a second": {"second third": round(first, 1), "last third": round(last, 1)},
            "processes": {
                name: {"MB": round(seen[-1][1], 1)} | _bytes(*self.growth(name))
                for name, seen in self.seen.items()
            },
        }


def _bytes(a_round: float, uncertainty: float) -> dict[str, int]:
    return {"bytes a round": round(a_round), "give or take": round(uncertainty)}


def slope(looks: list[tuple[float, float]]) -> tuple[float, float]:
    """Of the line through the means of equal stretches, and its uncertainty."""
    marks = [len(looks) * i // STRETCHES for i in range(STRETCHES + 1)]
    stretches = [looks[a:b] for a, b in itertools.pairwise(marks)]
    xs, ys = zip(
        *([statistics.fmean(c) for c in zip(*s, strict=True)] for s in stretches), strict=True
    )
    line = statistics.linear_regression(xs, ys)
    rest = sum((y - line.slope * x - line.intercept) ** 2 for x, y in zip(xs, ys, strict=True))
    spread = statistics.pvariance(xs) * STRETCHES
    return line.slope, STUDENT * (rest / (STRETCHES - 2) / spread) ** 0.5


async def soaked(local: LocalRun, rounds: int, calm: bool) -> Soak:
    authority = open_authority(local.address, local.run_id, Identity.random())
    soak = Soak(local, Observer(authority))
    tasks = [asyncio.create_task(soak.observer.follow())]
    try:
        await soak.observer.until(lambda state: state.epoch.rounds, "the first round")
        if not calm:
            tasks.append(asyncio.create_task(soak.churn()))
        await soak.look(rounds)
    finally:
        await end_tasks(tasks)
        await authority.close()
    return soak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3000)
    parser.add_argument("--authority", choices=["server", "store"], default="server")
    parser.add_argument("--calm", action="store_true", help="nobody dies")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "corpus.txt").write_text("".join(f"{n} times {n}; " for n in range(4000)))
        file = folder / "run.toml"
        file.write_text(CONFIG.format(folder=folder))
        with LocalRun(file, "soak", folder) as local:
            local.serve() if options.authority == "server" else local.keep_in_store()
            for _ in range(CLIENTS):
                local.join()
            figures = asyncio.run(soaked(local, options.rounds, options.calm)).figures()
    pace = figures["rounds a second"]
    print(f"{figures['rounds']:,} rounds with {figures['deaths']} deaths; a second: {pace}")
    kept = pace["last third"] >= PACE_GOAL * pace["second third"]
    print(f"  pace kept: {results.GOALS[kept]}")
    for name, seen in figures["processes"].items():
        met = seen["bytes a round"] - seen["give or take"] <= GROWTH_GOAL
        told = f"{seen['MB']} MB, {seen['bytes a round']} ± {seen['give or take']} bytes a round"
        print(f"  {name}: {told} (goal {GROWTH_GOAL}, {results.GOALS[met]})")
        kept = kept and met
    if options == parser.parse_args([]):
        results.write("soak", "make soak", figures)
    sys.exit(not kept)


if __name__ == "__main__":
    main()
