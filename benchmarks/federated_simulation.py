"""A thousand virtual participants, ten rounds: Folkmoot's simulation beside Flower's, in one run.

The same work in both (an epoch on twenty digits in numpy, FedAvg over all), on this machine, each
from the start of its command to its end: `make bench-federated-simulation`. Both models must be
equally good. Systems take turns, and the median of `--repeat` is kept.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import results
from systems import HERE, QUIET, RAY, flower_python

OUT = Path("out/federated-simulation").resolve()
TOML = """
run_id = "simulated"
initial_weights = "initial.safetensors"

[rounds]
rounds = {rounds}
"""


def main() -> None:
    args = parse()
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    prepare(args.rounds)
    measured: dict[str, list[dict[str, float]]] = {"Folkmoot": [], "Flower": []}
    for number in range(args.repeat):
        for name, run in (("Folkmoot", folkmoot), ("Flower", flower)):
            row = timed(run, args.count, args.rounds, number)
            measured[name].append(row)
            print(f"{name:<9} {row['seconds']:7.1f} s, {row['CPU seconds']:7.1f} CPU s, "
                  f"accuracy {row['accuracy']:.3f}", flush=True)  # fmt: skip
    table = {name: median(rows) for name, rows in measured.items()}
    share = table["Folkmoot"]["seconds"] / table["Flower"]["seconds"]
    print(f"{args.count} participants, {args.rounds} rounds: {share:.2f} of Flower's time")
    if not args.partly:
        figures = {"simulated": table, "share of Flower's time": results.significant(share, 2)}
        shape = {"participants": args.count, "rounds": args.rounds}
        results.write("federated_simulation", "make bench-federated-simulation", figures | shape)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--partly", action="store_true", help="keep no results")
    return parser.parse_args()


def prepare(rounds: int) -> None:
    """The images, the first weights and the federation, as files for both."""
    x, y = load_digits(return_X_y=True)
    np.savez(OUT / "digits.npz", x=(x / 16).astype(np.float32), y=y)
    os.environ["BENCH_DIGITS"] = str(OUT / "digits.npz")
    sys.path.insert(0, str(HERE / "simulated"))
    import work
    from safetensors.numpy import save_file

    save_file(dict(zip("abcd", work.initial(), strict=True)), OUT / "initial.safetensors")
    (OUT / "federation.toml").write_text(TOML.format(rounds=rounds))


def timed(run: Any, count: int, rounds: int, number: int) -> dict[str, float]:
    import work

    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.monotonic()
    weights = run(count, rounds, number)
    seconds = time.monotonic() - began
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return {"seconds": seconds, "CPU seconds": cpu, "accuracy": work.accuracy(weights)}


def folkmoot(count: int, rounds: int, number: int) -> list[np.ndarray]:
    home = OUT / f"folkmoot-{number}"
    path = f"{HERE.parent / 'src'}{os.pathsep}{HERE / 'simulated'}"
    command = [sys.executable, "-m", "folkmoot", "federate", "simulate", OUT / "federation.toml"]
    more = ["-p", "ours:Digits", "-n", count, "--rounds", rounds, "-o", home]
    execute([*command, *more], home, PYTHONPATH=path)
    from safetensors.numpy import load_file

    model = load_file(home / "bucket" / str(rounds) / "global")
    return [model[name] for name in "abcd"]


def flower(count: int, rounds: int, number: int) -> list[np.ndarray]:
    out = OUT / f"flower-{number}.npz"
    script = HERE / "simulated/flower.py"
    execute([flower_python(), script, count, rounds, out], out.with_suffix(""), **QUIET, **RAY)
    model = np.load(out)
    return [model[name] for name in model.files]


def execute(command: list[Any], log: Path, **environment: str) -> None:
    env = os.environ | {"OMP_NUM_THREADS": "1", **environment}
    with log.with_name(f"{log.name}.log").open("wb") as file:
        words = [str(word) for word in command]
        subprocess.run(words, check=True, env=env, stdout=file, stderr=file, cwd=OUT)


def median(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: results.significant(statistics.median(r[name] for r in rows)) for name in rows[0]}


if __name__ == "__main__":
    main()
