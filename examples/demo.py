"""A real run on this machine: three clients train a language model together, one is killed, one
joins late.

They learn the source of Python's own standard library, each a process of its own, through a
coordinator, gossip and blobs, with DisTrO. Half-way one client is killed with SIGKILL; another
joins, gets the model from its peers, and goes on with the rest. At the end: a checkpoint, a sample
of what it writes, and a plot.

    python examples/demo.py                  # about two minutes on two cores
    python examples/demo.py --steps 1000
    python examples/demo.py --authority store    # nobody serves: the run is in a shared store
"""

import argparse
import shutil
import sysconfig
from pathlib import Path
from typing import Any

import folkmoot
from folkmoot.cli.progress import progress_bar
from folkmoot.observe.local_run import sum_up, watch
from folkmoot.runs.local_processes import LocalRun

VOCABULARY = 1024
SEQUENCE = 128
CONFIG = """\
run_id = "demo"

[config]
total_steps = {steps}
min_clients = 2
init_min_clients = 3
rounds_per_epoch = {rounds}
global_batch_size_start = 24
max_round_train_time = 5
round_witness_time = 2
warmup_time = 60
cooldown_time = 30
health_check_timeout = 30
delay = 0

[model]
max_seq_len = {sequence}
checkpoint = "{folder}/checkpoints"
tokenizer = "{tokenizer}"

[model.architecture]
type = "gpt"
vocab_size = {vocabulary}
layers = 4
heads = 4
width = 128
context = {sequence}

[model.data]
type = "tokens"
paths = ["{train}"]

[model.held_out]
type = "tokens"
paths = ["{held_out}"]

[model.lr]
type = "cosine"
base_lr = 0.012
warmup_steps = 10
total_steps = {steps}
final_lr = 0.0012

[model.method]
type = "distro"
k = 32
"""


def main() -> None:
    options = arguments()
    folder = options.out.resolve()
    for old in (folder / "server", folder / "checkpoints", *folder.glob("client-*")):
        shutil.rmtree(old, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    train, held_out, tokenizer = library(folder)
    file = folder / "run.toml"
    file.write_text(
        CONFIG.format(
            steps=options.steps,
            rounds=-(-options.steps // 3),
            sequence=SEQUENCE,
            folder=folder,
            tokenizer=tokenizer,
            vocabulary=VOCABULARY,
            train=train,
            held_out=held_out,
        )
    )
    run = folkmoot.load_run(file)
    print(f"three clients learn {train.stat().st_size // 2:,} tokens of Python, {folder}")
    with LocalRun(file, run.run_id, folder) as local:
        if options.authority == "store":
            local.keep_in_store(options.store)
        else:
            local.serve()
        for _ in range(3):
            local.join()
        try:
            picture = watch(local, run, Churn(local, run))
        except KeyboardInterrupt:
            print("\nstopping; what was stored stays in", folder)
            return
    sum_up(picture, folder, run)
    sample(folder / "checkpoints")


class Churn:
    """Kills a client a fifth of the way, and lets a new one join."""

    def __init__(self, local: LocalRun, run: folkmoot.Run) -> None:
        self.local, self.at = local, run.config.total_steps // 5
        self.done = False

    def __call__(self, picture: Any) -> None:
        if self.done or picture.step < self.at:
            return
        self.done = True
        victim = next(iter(self.local.clients))
        self.local.kill(victim)
        picture.clients[victim].gone = True
        picture.note(f"killed {victim} (SIGKILL); a new client joins", "killed, another joins")
        self.local.join()


def library(folder: Path) -> tuple[Path, Path, Path]:
    """Token files of the standard library: one to train on, one that nobody trains on."""
    root = Path(sysconfig.get_path("stdlib"))
    skipped = ("site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3")
    files = sorted(p for p in root.rglob("*.py") if not set(skipped) & set(p.parts))
    held_out = files[::20]
    train = [p for p in files if p not in set(held_out)]
    out = folder / "train.bin"
    prepared = tokens(train, f"bpe:{VOCABULARY}", out, "reading the standard library")
    tokenizer = out.with_name(prepared.tokenizer)
    tokens(held_out, str(tokenizer), folder / "held_out.bin", "and what is held out")
    return out, folder / "held_out.bin", tokenizer


def tokens(files: list[Path], tokenizer: str, out: Path, label: str) -> Any:
    from folkmoot.learning.data.prepare import Preparation, prepare

    step: Any = None
    with progress_bar(label, sum(p.stat().st_size for p in files)) as advance:
        for step in prepare(files, tokenizer, out):
            if isinstance(step, Preparation):
                advance(step.consumed)
    return step


def sample(checkpoints: Path) -> None:
    """What the model writes now."""
    prompt = "def read(self"
    print(f"\na sample:\n\n{prompt}", end="")
    model = folkmoot.load_checkpoint(checkpoints)
    print(*model.generate(prompt, tokens=120, temperature=0.7, top_k=50, seed=1), sep="")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=240, help="rounds of training")
    parser.add_argument("--authority", choices=["server", "store"], default="server")
    parser.add_argument("--store", default="", help="tcp://… or etcd://…; else one is started")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), help="where all goes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
