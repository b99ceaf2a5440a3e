"""What the death of one process costs the others of a live run, in seconds.

    python benchmarks/run_deaths.py [--authority server|store] [--only NAME]

Three clients train the model of `examples/demo.py`. In one epoch after the other, one of them, or
the server, is killed, interrupted or stopped in the middle of a round, or a checkpointer as it
begins to store. What it costs is how much longer the next rounds took than as many usual ones, or
how much longer the cooldown did; of a server that is killed, beside the time until it listens
again. The run's own limits are those of the demo: a round may take 5
seconds, and 2 more for its witnesses.
"""

import argparse
import asyncio
import signal
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import results
from folkmoot.authority.open import open_authority
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator.committee import is_checkpointer
from folkmoot.host.signing import Identity
from folkmoot.runs.local_processes import LocalRun

CONFIG = """
run_id = "deaths"
[config]
total_steps = 100000
min_clients = 2
init_min_clients = 3
rounds_per_epoch = 30
global_batch_size_start = 24
max_round_train_time = 5
round_witness_time = 2
warmup_time = 60
cooldown_time = 30
health_check_timeout = 30
delay = 0
[model]
max_seq_len = 128
checkpoint = "{folder}/checkpoints"
[model.architecture]
type = "gpt"
vocab_size = 257
layers = 4
heads = 4
width = 128
context = 128
[model.data]
type = "text"
paths = [{paths}]
[model.method]
type = "distro"
k = 32
"""
# The round in which something happens, and how many rounds from it on are looked at.
AT, ROUNDS = 8, 12
STOPPED = 30.0
PATIENCE = 240.0
# Seconds that each may cost, beside `rounds` usual rounds.
GOALS = {
    "kill -9": (2.0, 0),
    "Ctrl-C": (1.0, 0),
    "SIGSTOP for 30 s": (2.0, 3),
    "kill -9 of the checkpointer": (2.0, 0),
    "kill -9 of the server": (2.0, 0),
}


class Observer:
    """Follows the run like a client that never joins, and notes when what began."""

    def __init__(self, authority: Any) -> None:
        self.authority = authority
        self.state: Coordinator | None = None
        self.began: dict[tuple[int, int], float] = {}  # rounds, by epoch and height
        self.phases: list[tuple[float, Phase]] = []
        self._news = asyncio.Event()

    async def follow(self) -> None:
        async for state in self.authority.watch():
            now = time.monotonic()
            self.state = state
            if state.epoch.rounds:
                self.began.setdefault((state.epoch_number, state.round.height), now)
            if not self.phases or self.phases[-1][1] is not state.phase:
                self.phases.append((now, state.phase))
            self._news.set()

    async def until(self, done: Callable[[Coordinator], Any], what: str) -> Coordinator:
        try:
            async with asyncio.timeout(PATIENCE):
                while self.state is None or not done(self.state):
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise RuntimeError(f"waited for {what} in vain: {self.phases[-5:]}") from None
        return self.state

    def lengths(self, epoch: int, first: int, count: int) -> list[float]:
        starts = [self.began[epoch, height] for height in range(first, first + count + 1)]
        return [after - before for before, after in pairwise(starts)]


class Deaths:
    """A run, and what is done to its processes."""

    def __init__(self, local: LocalRun, observer: Observer) -> None:
        self.local, self.observer = local, observer
        self.down = 0.0  # how long there was no server

    def victim(self) -> str:
        return max(name for name, p in self.local.clients.items() if p.poll() is None)

    async def in_round(self, hurt: Callable[[str], Awaitable[None]]) -> tuple[float, float]:
        """(cost, a usual round) when one is hurt in the middle of a round."""
        name, observer = self.victim(), self.observer
        state = await self._epoch_of_three()
        await hurt(name)
        at, epoch = observer.state.round.height, state.epoch_number  # type: ignore[union-attr]
        await observer.until(lambda s: _beyond(s, epoch, at + ROUNDS), "the rounds after it")
        lengths = observer.lengths(epoch, at, ROUNDS)
        usual = statistics.median(lengths)
        await self._whole_again(name, epoch)
        return sum(lengths) - ROUNDS * usual - self.down, usual

    async def _epoch_of_three(self) -> Coordinator:
        """The middle of a round in an epoch of three."""
        observer = self.observer
        full = await observer.until(
            lambda s: s.active == 3 and s.epoch.rounds and s.round.height == AT, "an epoch of three"
        )
        before = statistics.median(observer.lengths(full.epoch_number, AT - 4, 4))
        await asyncio.sleep(before / 2)
        return full

    async def _whole_again(self, name: str, epoch: int) -> None:
        if self.local.clients[name].poll() is not None:
            self.local.rejoin(name)
        await self.observer.until(lambda s: s.epoch_number > epoch, "the next epoch")

    def _key(self, name: str) -> bytes:
        return Identity.load(self.local.folder / name / "client.key").public

    async def kill(self, name: str) -> None:
        self.local.kill(name)

    async def interrupt(self, name: str) -> None:
        self.local.clients[name].send_signal(signal.SIGINT)

    async def stop(self, name: str) -> None:
        process = self.local.clients[name]
        process.send_signal(signal.SIGSTOP)
        loop = asyncio.get_running_loop()
        loop.call_later(STOPPED, process.send_signal, signal.SIGCONT)

    async def kill_server(self, name: str) -> None:
        address, killed = self.local.address, time.monotonic()
        self.local.kill("server")
        await asyncio.to_thread(self.local.serve, address)
        self.down = time.monotonic() - killed

    async def checkpointer(self) -> tuple[float, float]:
        """As `in_round`, of the one that is elected to store the model, as cooldown begins."""
        observer = self.observer
        state = await self._epoch_of_three()
        epoch = state.epoch_number
        state = await observer.until(
            lambda s: s.phase is Phase.Cooldown and s.epoch_number == epoch, "cooldown"
        )
        elected = _checkpointer(state)
        name = next(name for name in self.local.clients if self._key(name) == elected)
        self.local.kill(name)
        began = time.monotonic()
        await observer.until(lambda s: s.phase is not Phase.Cooldown, "the end of cooldown")
        took = time.monotonic() - began
        await self._whole_again(name, epoch)
        return took, 0.0


def _beyond(state: Coordinator, epoch: int, height: int) -> bool:
    if state.epoch_number != epoch:
        raise RuntimeError("the epoch ended before its time")
    return state.round.height >= height


def _checkpointer(state: Coordinator) -> bytes:
    election = state.epoch.cooldown
    assert election is not None
    size = state.roster_size(election)
    index = next(i for i in range(size) if is_checkpointer(i, size, election.seed))
    return state.epoch.clients[state.place(election, index)].id


async def measure(local: LocalRun, wanted: list[str]) -> dict[str, dict[str, Any]]:
    authority = open_authority(local.address, local.run_id, Identity.random())
    observer = Observer(authority)
    following = asyncio.create_task(observer.follow())
    deaths = Deaths(local, observer)
    do: dict[str, Callable[[], Awaitable[tuple[float, float]]]] = {
        "kill -9": lambda: deaths.in_round(deaths.kill),
        "Ctrl-C": lambda: deaths.in_round(deaths.interrupt),
        "SIGSTOP for 30 s": lambda: deaths.in_round(deaths.stop),
        "kill -9 of the checkpointer": deaths.checkpointer,
        "kill -9 of the server": lambda: deaths.in_round(deaths.kill_server),
    }
    rows: dict[str, dict[str, Any]] = {}
    try:
        for name in wanted:
            cost, usual = await do[name]()
            seconds, rounds = GOALS[name]
            goal = seconds + rounds * usual
            rows[name] = {
                "costs the others (s)": round(cost, 1),
                "a usual round (s)": round(usual, 2) if usual else "–",
                "goal (s)": round(goal, 1),
            }
            print(f"{name:30} {cost:5.1f} s, goal {goal:.1f} s; a round {usual:.2f} s", flush=True)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await authority.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--authority", choices=["server", "store"], default="server")
    parser.add_argument("--only", choices=list(GOALS), action="append")
    options = parser.parse_args()
    wanted = options.only or list(GOALS)
    if options.authority == "store":
        wanted = [name for name in wanted if "server" not in name]
    library = Path(sysconfig.get_path("stdlib"))
    paths = ", ".join(f'"{path}"' for path in sorted(library.glob("*.py")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "run.toml"
        file.write_text(CONFIG.format(folder=folder, paths=paths))
        with LocalRun(file, "deaths", folder) as local:
            local.serve() if options.authority == "server" else local.keep_in_store()
            for _ in range(3):
                local.join()
            rows = asyncio.run(measure(local, wanted))
    if options == parser.parse_args([]):
        results.write("run_deaths", "make bench-run", {"deaths": rows})
    sys.exit(any(row["costs the others (s)"] > row["goal (s)"] for row in rows.values()))


if __name__ == "__main__":
    main()
