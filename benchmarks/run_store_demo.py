"""The demo's run in a store beside the same on a server: what it learns, how fast, what is lost.

    python benchmarks/run_store_demo.py [--steps 30] [--repeats 8]

The run of `examples/demo.py` (three clients, a small GPT, DisTrO, the standard library's source) on
a server, in a TCPStore, in an etcd of one member and in one of three, one after the other, in
another order each time. Tokens a second are what a round learns, divided by the median length of
the rounds. A round is the training of its slowest client, and the rest: who keeps the run decides
the rest, while training is the same work everywhere and differs by a tenth from one run to the next
with what else the machine does. So a store is compared with the server by rounds with the same
training, the median of all; how each kind trained stands beside it, and what single turns gave with
everything in them. Beside it is the processor time that a step takes:
of the clients, and of whoever keeps the run (server, store, all members of etcd, and the process
that writes the log of a run in a store). Then all at the same time, hurt: a client is killed, the
client that made the newest record is killed right after it, and of three etcd members the one that
leads; newcomers take their places. Twelve clients share what three have in the demo then, so its
deadlines are ten times as long everywhere.

Everything shares the machine's cores with the training, etcd too, which elsewhere has machines of
its own, a disk each: with three members here every write is synced three times by one disk, and
handled three times by the cores that train. So the goal for tempo is set for one member, and the
figure with three stands beside it.

Goals: in the stores at least 0.95 times the server's tokens a second, the same held-out loss within
2 %, and hurt or not every step is learnt, with one model at the end.
"""

import argparse
import contextlib
import multiprocessing
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import results
from folkmoot.authority.store import keys
from folkmoot.authority.store.kv import Store
from folkmoot.authority.store.kv.open import open_store
from folkmoot.authority.store.signed import Signed
from folkmoot.client.events import ShareTrained
from folkmoot.core.coordinator import Run, decode_run
from folkmoot.core.coordinator.messages import RoundStarted
from folkmoot.host.processes import Processes
from folkmoot.host.signing import Identity
from folkmoot.observe.logs import open_log
from folkmoot.observe.picture import Picture
from folkmoot.runs.local_processes import LocalRun

HERE = Path(__file__).parent
sys.path += [str(HERE.parent / "examples"), str(HERE.parent / "tests")]
import demo  # noqa: E402

from support.etcd import Etcd  # noqa: E402

KINDS = SERVER, TCP, ETCD, ETCD_OF_THREE = "server", "TCPStore", "etcd", "etcd of three"
MEMBERS = {ETCD: 1, ETCD_OF_THREE: 3}
SOLANA = "Solana"  # of run_solana_demo.py
GOAL_TEMPO, GOAL_LOSS = 0.95, 0.02
SETTLING = 3  # rounds at the beginning that are not measured
LOOK = 0.05  # seconds between two looks at a run
TICKS = os.sysconf("SC_CLK_TCK")  # of processor time, in a second


class Outcome(NamedTuple):
    phase: str
    step: int
    held_out: dict[int, float]  # by step
    tokens_a_second: float
    training: float  # seconds of a round in which its slowest client trains
    rest: float  # and the others
    models: int  # different ones, of the clients that stayed to the end
    deaths: str
    effort: dict[str, float]  # processor seconds a step, by process


Each = Callable[[Picture], None]


def play(kind: str, folder: Path, data: tuple[Path, ...], steps: int, hurt: bool) -> Outcome:
    """One run from beginning to end."""
    run_folder = folder / "run"
    file, run = write_run(run_folder, data, steps)
    etcd = Etcd(folder / "etcd", MEMBERS[kind]) if kind in MEMBERS else None
    try:
        with LocalRun(file, run.run_id, run_folder) as local:
            if kind == SERVER:
                local.serve()
            elif kind == SOLANA:
                local.keep_on_solana()
            else:
                local.keep_in_store(etcd.url if etcd else "")
            for _ in range(3):
                local.join()
            hurting = Hurting(local, run, etcd) if hurt else None
            effort = Effort(local, *([etcd.processes] if etcd else []))
            picture = follow(local, hurting or effort)
            told = hurting.told if hurting else []
            return outcome(picture, run_folder, run, told, effort.a_step())
    finally:
        if etcd:
            etcd.stop()


def write_run(folder: Path, data: tuple[Path, ...], steps: int) -> tuple[Path, Run]:
    folder.mkdir(parents=True)
    train, held_out, tokenizer = data
    text = patient(demo.CONFIG).format(
        steps=steps,
        rounds=-(-steps // 3),
        sequence=demo.SEQUENCE,
        folder=folder,
        tokenizer=tokenizer,
        vocabulary=demo.VOCABULARY,
        train=train,
        held_out=held_out,
    )
    file = folder / "run.toml"
    file.write_text(text)
    return file, decode_run(text)


def patient(config: str) -> str:
    """Twelve clients share what three have in the demo."""
    for name in ("max_round_train_time", "round_witness_time", "warmup_time", "cooldown_time"):
        config = re.sub(rf"^{name} = (\d+)$", lambda m: f"{m[0]}0", config, flags=re.M)
    return config.replace("health_check_timeout = 30", "health_check_timeout = 600")


def follow(local: LocalRun, each: Each) -> Picture:
    picture = Picture(local.folder)
    while local.running():
        picture.update()
        each(picture)
        if failed := local.failed():
            raise RuntimeError(f"{failed[0]} ended:\n{local.output(failed[0])}")
        local.wait(LOOK)
    picture.update()
    return picture


class Effort:
    """Notes the processor time of every process when the run has settled, and ever after."""

    def __init__(self, *processes: Processes) -> None:
        self._processes = processes
        self._first: tuple[int, dict[str, float]] | None = None
        self._last: tuple[int, dict[str, float]] = (0, {})

    def __call__(self, picture: Picture) -> None:
        if picture.step > max(self._last[0], SETTLING):
            self._last = picture.step, self._used()
            self._first = self._first or self._last

    def a_step(self) -> dict[str, float]:
        if self._first is None:
            return {}
        (begin, before), (end, after) = self._first, self._last
        return {name: (after[name] - before[name]) / max(end - begin, 1) for name in after}

    def _used(self) -> dict[str, float]:
        """By name; of those that ended meanwhile, nothing."""
        used = {}
        for name, pid in (pair for some in self._processes for pair in some.pids().items()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                line = Path(f"/proc/{pid}/stat").read_text()
                fields = line.rpartition(")")[2].split()  # the third, its state, is the first here
                used[name] = (int(fields[11]) + int(fields[12])) / TICKS
        return used


def outcome(
    picture: Picture, folder: Path, run: Run, told: list[str], effort: dict[str, float]
) -> Outcome:
    starts = [
        entry.time / 1000
        for entry in open_log(folder / "server" / "events.jsonl", "server").new()
        if isinstance(entry.record, RoundStarted) and entry.record.samples
    ]
    lengths = [b - a for a, b in pairwise(starts)]
    length = statistics.median(lengths[SETTLING:])
    trained = slowest_training(folder)
    training = statistics.median(trained[step] for step in trained if step >= SETTLING)
    rest = statistics.median(
        length - trained[step]
        for step, length in enumerate(lengths)
        if step in trained and step >= SETTLING
    )
    tokens = run.config.global_batch_size_start * run.model.max_seq_len
    hashes = {c.hash for c in picture.clients.values() if c.state == "ended"}
    said = ", ".join(told) or "none"
    learnt = picture.phase, picture.step, picture.held_out
    return Outcome(*learnt, tokens / length, training, rest, len(hashes), said, effort)


def slowest_training(folder: Path) -> dict[int, float]:
    """Seconds, by step."""
    slowest: dict[int, float] = {}
    for log in folder.glob("client-*/events.jsonl"):
        for _, record in open_log(log, "client").new():
            if isinstance(record, ShareTrained):
                slowest[record.step] = max(record.seconds, slowest.get(record.step, 0.0))
    return slowest


class Hurting:
    """Kills a client, then the client that made the newest record, then etcd's leader."""

    def __init__(self, local: LocalRun, run: Run, etcd: Etcd | None) -> None:
        self._local, self._steps, self._etcd = local, run.config.total_steps, etcd
        self._store: Store | None = None
        if url := etcd.url if etcd else local.store:
            self._store = open_store(url, run.run_id)
        self._todo = [self._kill_client, self._kill_ticking, self._kill_leader]
        self.told: list[str] = []

    def __call__(self, picture: Picture) -> None:
        done = len(self.told)
        if done < len(self._todo) and picture.step >= self._steps * (done + 1) // 5:
            self._todo[done]()

    def _kill_client(self) -> None:
        self._replace(next(iter(self._local.clients)), "a client")

    def _kill_ticking(self) -> None:
        """Where no record says who ticked, any client will do."""
        names = [name for name, p in self._local.clients.items() if p.poll() is None]
        if self._store is None:
            self._replace(names[0], "another client")
            return
        maker = msgspec.msgpack.decode(self._store.get(keys.RECORD) or b"", type=Signed).key
        for name in names:
            key = self._local.folder / name / "client.key"
            if key.exists() and Identity.read(key).public == maker:
                self._replace(name, "the client that ticked last")
                return

    def _kill_leader(self) -> None:
        if self._etcd is None or len(self._etcd.names) < 3:
            self._todo.pop()
            return
        self._etcd.kill(self._etcd.leader())
        self.told.append("the etcd member that led")

    def _replace(self, name: str, what: str) -> None:
        self._local.kill(name)
        self._local.join()
        self.told.append(what)


def measure(
    steps: int, repeats: int, home: Path, kinds: tuple[str, ...] = KINDS
) -> dict[str, dict[str, Any]]:
    data = demo.library(home)
    turns = [play_in_turn(home / f"{n}", data, steps, kinds[:: (-1) ** n]) for n in range(repeats)]
    hurt = play_together(home / "hurt", data, steps, kinds)
    known = (set(x.held_out) for turn in (*turns, hurt) for x in turn.values())
    at = max(set.intersection(*known))  # the last step of which all know the loss
    return {kind: row(kind, turns, hurt[kind], steps, at) for kind in kinds}


def play_in_turn(
    home: Path, data: tuple[Path, ...], steps: int, kinds: tuple[str, ...]
) -> dict[str, Outcome]:
    outcomes = {}
    for kind in kinds:
        outcomes[kind] = play(kind, home / kind, data, steps, hurt=False)
        tell(kind, outcomes[kind])
    return outcomes


def play_together(
    home: Path, data: tuple[Path, ...], steps: int, kinds: tuple[str, ...]
) -> dict[str, Outcome]:
    """All at the same time, each watched by a process of its own, and hurt."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(kinds), mp_context=context) as pool:
        playing = {kind: pool.submit(play, kind, home / kind, data, steps, True) for kind in kinds}
        for kind, run in playing.items():
            tell(f"{kind}, hurt", run.result())
        return {kind: run.result() for kind, run in playing.items()}


def tell(what: str, outcome: Outcome) -> None:
    print(f"{what}: {outcome}; load {os.getloadavg()[0]:.0f}", flush=True)


def row(
    kind: str, turns: list[dict[str, Outcome]], hurt: Outcome, steps: int, at: int
) -> dict[str, Any]:
    ours = [turn[kind] for turn in turns]
    training = statistics.median(x.training for turn in turns for x in turn.values())
    mine, servers = (statistics.median(turn[k].rest for turn in turns) for k in (kind, SERVER))
    beside = [turn[kind].tokens_a_second / turn[SERVER].tokens_a_second for turn in turns]
    whole = all(x.phase == "Finished" and x.models == 1 for x in (*ours, hurt))
    least, most = results.significant(min(beside)), results.significant(max(beside))
    clients, keepers = (
        results.significant(statistics.median(total(x.effort, own) for x in ours))
        for own in (True, False)
    )
    return {
        "tokens a second": round(statistics.median(x.tokens_a_second for x in ours)),
        "beside the server": results.significant((training + servers) / (training + mine)),
        "a round, ms": f"{1000 * statistics.median(x.training for x in ours):.0f} of training, "
        f"{1000 * mine:.0f} else",
        "in single turns": f"{results.significant(statistics.median(beside))} ({least} to {most})",
        "processor seconds a step": f"{clients} of clients, {keepers} of keepers",
        f"held-out loss at step {at}": results.significant(
            statistics.median(x.held_out[at] for x in ours), 4
        ),
        "with deaths": results.significant(hurt.held_out[at], 4),
        "killed": hurt.deaths,
        "steps learnt": f"{min(x.step for x in (*ours, hurt))} of {steps}"
        + ("" if whole else ", with errors"),
    }


def total(effort: dict[str, float], of_clients: bool) -> float:
    return sum(s for name, s in effort.items() if name.startswith("client") == of_clients)


def goals(table: dict[str, dict[str, Any]]) -> list[tuple[str, bool]]:
    slowest = min(table[kind]["beside the server"] for kind in (TCP, ETCD))
    tempo = f"tokens a second {slowest} of the server's; goal {GOAL_TEMPO}"
    return [(tempo, slowest >= GOAL_TEMPO), *learning_goals(table)]


def learning_goals(table: dict[str, dict[str, Any]]) -> list[tuple[str, bool]]:
    """What holds whoever keeps the run."""
    losses = [row[x] for row in table.values() for x in row if "loss" in x or "deaths" in x]
    apart = max(losses) / min(losses) - 1
    whole = all(not row["steps learnt"].endswith("errors") for row in table.values())
    return [
        (f"held-out losses {apart:.1%} apart; goal {GOAL_LOSS:.0%}", apart <= GOAL_LOSS),
        ("every run finished, with one model", whole),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--repeats", type=int, default=8, help="turns that are not hurt")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        table = measure(asked.steps, asked.repeats, Path(name))
    for goal, met in goals(table):
        print(f"{goal}: {results.GOALS[met]}")
    if asked == parser.parse_args([]):
        results.write("run_store_demo", "make bench-store", table)


if __name__ == "__main__":
    main()
