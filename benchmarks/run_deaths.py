"""What the death of one process costs the others of a live run, in seconds.

    python benchmarks/run_deaths.py [--authority server|store] [--only NAME|torchft]

Three clients train the model of `examples/demo.py`. In one epoch after the other, one of them, or
the server, is killed, interrupted or stopped in the middle of a round, or a checkpointer as it
begins to store. What it costs is how much longer the next rounds took than as many usual ones, or
how much longer the cooldown did; of a server that is killed, beside the time until it listens
again. One that is slow may use a few hundredths of a processor for all these rounds. The run's own
limits are those of the demo: a round may take 5 seconds, and 2 more for its witnesses.

Beside it torchft, as `make bench-elastic` runs it, with three ranks and the run's own heartbeat: as
often as a client asks one that it waits for whether it is there, and dead after as long a silence.
Its steps take milliseconds, so that it loses no work: what it costs is the time to its next step.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import sysconfig
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import elastic_recovery as recovery
import results
from folkmoot.authority.open import open_authority
from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator.client.waiting import PROBES_PER_SILENCE, SHORTEST_SILENCE
from folkmoot.core.coordinator.committee import is_checkpointer
from folkmoot.host.signing import Identity
from folkmoot.host.tasks import end_tasks
from folkmoot.runs.local_processes import LocalRun
from processes import running_seconds
from run_observer import Observer

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
# The share of a processor that a slow client has, and how often it is looked at, in seconds.
SLOW, LOOK = 0.03, 0.02
CLIENTS = 3
# Seconds that each may cost, beside `rounds` usual rounds.
GOALS = {
    "kill -9": (2.0, 0),
    "Ctrl-C": (1.0, 0),
    "SIGSTOP for 30 s": (2.0, 3),
    "kill -9 of the checkpointer": (2.0, 0),
    "kill -9 of the server": (2.0, 0),
    # It may be nearly too late once, and is too late in the next round: then it has lost its place.
    "at 3 % of a processor": (5.0, 3),
}
KILLED = "kill -9"
# Kills of which the median counts, of one client of the run and of one rank of torchft.
KILLS = 3
SILENCE = SHORTEST_SILENCE / 1000
TORCHFT = recovery.System(
    "torchft",
    f"{SILENCE / PROBES_PER_SILENCE:g} s, dead after {SILENCE:g} s",
    recovery.torchft(SILENCE / PROBES_PER_SILENCE, SILENCE, join=60.0),
)
BESIDE = f"torchft, kill -9 (heartbeats: {TORCHFT.settings})"


class Deaths:
    """A run, and what is done to its processes."""

    def __init__(self, local: LocalRun, observer: Observer) -> None:
        self.local, self.observer = local, observer
        self.down = 0.0  # how long there was no server
        self.slowing: asyncio.Task[None] | None = None

    def victim(self) -> str:
        return max(name for name, p in self.local.clients.items() if p.poll() is None)

    async def in_round(
        self, hurt: Callable[[str], Awaitable[None]], lasting: bool = False
    ) -> tuple[float, float]:
        """(cost, a usual round) when one is hurt in the middle of a round.

        What is `lasting` might slow all rounds after it: then the usual ones are those before.
        """
        name, observer = self.victim(), self.observer
        self.down = 0.0
        state = await self._epoch_of_three()
        await hurt(name)
        at, epoch = observer.state.round.height, state.epoch_number  # type: ignore[union-attr]
        await observer.until(lambda s: _beyond(s, epoch, at + ROUNDS), "the rounds after it")
        lengths = observer.lengths(epoch, at, ROUNDS)
        before = observer.lengths(epoch, AT - 4, 4)
        usual = statistics.median(before if lasting else lengths)
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
        if self.slowing:
            self.slowing.cancel()
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

    async def slow(self, name: str) -> None:
        self.slowing = asyncio.create_task(_slow_down(self.local.clients[name].pid))

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


async def _slow_down(pid: int) -> None:
    """Stop a process whenever it has used more than its share since we began, until cancelled."""
    began, used = time.monotonic(), running_seconds(pid)
    try:
        while True:
            due = SLOW * (time.monotonic() - began)
            ahead = running_seconds(pid) - used > due
            os.kill(pid, signal.SIGSTOP if ahead else signal.SIGCONT)
            await asyncio.sleep(LOOK)
    finally:
        os.kill(pid, signal.SIGCONT)


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
        "at 3 % of a processor": lambda: deaths.in_round(deaths.slow, lasting=True),
    }
    rows: dict[str, dict[str, Any]] = {}
    try:
        for name in wanted:
            measured = [await do[name]() for _ in range(KILLS if name == KILLED else 1)]
            cost, usual = (statistics.median(column) for column in zip(*measured, strict=True))
            seconds, rounds = GOALS[name]
            rows[name] = _row(name, cost, usual, seconds + rounds * usual)
    finally:
        await end_tasks([following])
        await authority.close()
    return rows


def _row(name: str, cost: float, usual: float, goal: float) -> dict[str, Any]:
    aim = f", goal {goal:.1f} s" if goal else ""
    print(f"{name:30} {cost:5.1f} s{aim}; a round {usual:.2f} s", flush=True)
    return {
        "costs the others (s)": round(max(cost, 0.0), 1),
        "a usual round (s)": round(usual, 2) if usual else "–",
        "goal (s)": round(goal, 1) if goal else "–",
    }


def torchft() -> dict[str, Any]:
    """The row of torchft: from a kill to the last survivor's next step."""
    home = Path("out/deaths").resolve()
    took = [recovery.measure(TORCHFT, home, number, CLIENTS) for number in range(KILLS)]
    return _row(BESIDE, statistics.median(took), 0.0, 0.0)


def met(rows: dict[str, dict[str, Any]]) -> bool:
    """Whether nothing cost more than its goal, and a kill no more than torchft's."""
    said = [(name, row["costs the others (s)"], row["goal (s)"]) for name, row in rows.items()]
    within = all(goal == "–" or cost <= goal for _, cost, goal in said)
    if BESIDE not in rows or KILLED not in rows:
        return within
    ours, theirs = (rows[name]["costs the others (s)"] for name in (KILLED, BESIDE))
    print(
        f"a kill costs {ours} s, torchft {theirs} s; goal: no more: {results.GOALS[ours <= theirs]}"
    )
    return within and ours <= theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--authority", choices=["server", "store"], default="server")
    parser.add_argument("--only", choices=[*GOALS, "torchft"], action="append")
    options = parser.parse_args()
    wanted = options.only or [*GOALS, "torchft"]
    if options.authority == "store":
        wanted = [name for name in wanted if "server" not in name]
    beside = {BESIDE: torchft()} if "torchft" in wanted else {}
    rows = deaths_of_a_run(options.authority, [name for name in wanted if name in GOALS])
    rows |= beside
    if options == parser.parse_args([]):
        results.write("run_deaths", "make bench-run", {"deaths": rows})
    sys.exit(not met(rows))


def deaths_of_a_run(authority: str, wanted: list[str]) -> dict[str, dict[str, Any]]:
    library = Path(sysconfig.get_path("stdlib"))
    paths = ", ".join(f'"{path}"' for path in sorted(library.glob("*.py")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "run.toml"
        file.write_text(CONFIG.format(folder=folder, paths=paths))
        with LocalRun(file, "deaths", folder) as local:
            local.serve() if authority == "server" else local.keep_in_store()
            for _ in range(CLIENTS):
                local.join()
            return asyncio.run(measure(local, wanted))


if __name__ == "__main__":
    main()
