"""Two clients of a run beside two plain training loops, on the same machine.

    python benchmarks/run_throughput.py

First two independent processes train the same GPT on the same batches with nothing around them
(forward, backward, AdamW). Then a run of two clients does, and its own log says how long rounds
took and how much of them was training. Goals: at least 0.9x the tokens a second of the plain
loops, and at most 5 % of a round that is not training, at ten seconds of training a round.
"""

import argparse
import multiprocessing
import statistics
import sys
import sysconfig
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import results
from folkmoot.client.events import ShareTrained
from folkmoot.core.coordinator import Run, decode_run
from folkmoot.core.coordinator.messages import RoundStarted
from folkmoot.observe.logs import open_log
from folkmoot.runs.local_processes import LocalRun

GOAL_THROUGHPUT, GOAL_OVERHEAD = 0.9, 0.05
CONFIG = """
run_id = "throughput"
[config]
total_steps = {steps}
min_clients = 2
global_batch_size_start = {batch}
max_round_train_time = 600
epoch_time = 100000
warmup_time = 300
work_by_speed = false
[model]
max_seq_len = 256
[model.architecture]
type = "gpt"
vocab_size = 257
layers = 4
heads = 8
width = 256
context = 256
[model.data]
type = "text"
paths = [{paths}]
"""


def plain_loop(
    run: Run, sequences: int, seconds: float, out: "multiprocessing.Queue[float]"
) -> None:
    """Train alone for a while; tokens a second."""
    import torch

    from folkmoot.client.learner import Learner
    from folkmoot.learning.gradients import loss_and_gradients

    torch.set_num_threads(1)
    learner = Learner(run)
    optimizer = torch.optim.AdamW(learner.model.parameters(), lr=1e-3)
    tokens, done = learner.data.samples(range(sequences)), 0

    def step() -> None:
        optimizer.zero_grad()
        loss_and_gradients(learner.model, tokens)
        optimizer.step()

    step()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        step()
        done += sequences * run.model.max_seq_len
    out.put(done / (time.perf_counter() - began))


def plain(run: Run, sequences: int, seconds: float) -> float:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    loops = [
        context.Process(target=plain_loop, args=(run, sequences, seconds, out)) for _ in range(2)
    ]
    for loop in loops:
        loop.start()
    total = sum(out.get() for _ in loops)
    for loop in loops:
        loop.join()
    return total


def together(file: Path, run: Run, folder: Path) -> tuple[float, float]:
    """(tokens a second, share of a round that is not training), the first rounds left out."""
    with LocalRun(file, run.run_id, folder) as local:
        local.serve()
        for _ in range(2):
            local.join()
        while local.running():
            local.wait()
        if any(process.returncode for process in local.clients.values()):
            raise RuntimeError(local.output("client-1"))
    starts = [
        entry.time / 1000
        for entry in open_log(folder / "server" / "events.jsonl", "server").new()
        if isinstance(entry.record, RoundStarted) and entry.record.samples
    ]
    lengths = [b - a for a, b in pairwise(starts[2:])]
    trained: dict[int, list[float]] = {}
    for name in local.clients:
        for _, record in open_log(folder / name / "events.jsonl", "client").new():
            if isinstance(record, ShareTrained):
                trained.setdefault(record.step, []).append(record.seconds)
    busy = [max(trained[step]) for step in range(2, 2 + len(lengths))]
    tokens = run.config.global_batch_size_start * run.model.max_seq_len
    overhead = statistics.median(1 - b / n for b, n in zip(busy, lengths, strict=True))
    return tokens / statistics.median(lengths), overhead


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10.0, help="of training a round")
    options = parser.parse_args()
    library = Path(sysconfig.get_path("stdlib"))
    paths = ", ".join(f'"{path}"' for path in sorted(library.glob("*.py")))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "run.toml"
        probe = decode_run(CONFIG.format(steps=1, batch=16, paths=paths))
        speed = plain(probe, 8, options.seconds / 2)
        each = max(1, round(speed / 2 * options.seconds / probe.model.max_seq_len))
        file.write_text(CONFIG.format(steps=options.steps, batch=2 * each, paths=paths))
        run = decode_run(file.read_text())
        print(f"{each} sequences a client and round", flush=True)
        before = plain(run, each, 3 * options.seconds)
        speed, overhead = together(file, run, folder)
        after = plain(run, each, 3 * options.seconds)
    alone = (before + after) / 2
    print(f"two plain loops   {alone:,.0f} tokens/s ({before:,.0f} before, {after:,.0f} after)")
    print(f"two clients       {speed:,.0f} tokens/s: {speed / alone:.2f}x, goal {GOAL_THROUGHPUT}x")
    print(f"not training      {overhead:.1%} of a round, goal {GOAL_OVERHEAD:.0%}")
    if options == parser.parse_args([]):
        figures = {
            "tokens_a_second": round(speed),
            "beside_plain_loops": results.significant(speed / alone),
            "not_training_percent": results.significant(100 * overhead, 1),
        }
        results.write("run_throughput", "make bench-run", figures)
    sys.exit(speed / alone < GOAL_THROUGHPUT or overhead > GOAL_OVERHEAD)


if __name__ == "__main__":
    main()
