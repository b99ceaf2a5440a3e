"""A language of sums, and the model that a run makes of it, before anybody rewards it.

A line is `7+5=12`. Half of the lines are wrong: a model that has read them writes lines of the
right form, and often enough the right answer, as one of many that it holds possible.
"""

import random
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import folkmoot
from folkmoot.client.events import ShareTrained
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.data.tokenizer import byte_tokenizer

LARGEST, WRONG = 9, 0.5
PROMPT, ANSWER = 4, 3  # tokens of `7+5=` and of its answer with the end of the line
TOKENS = byte_tokenizer()
BATCH = 64  # lines that a client reads in a round
RUN = """
run_id = "sums"
[config]
total_steps = {rounds}
rounds_per_epoch = {rounds}
min_clients = 2
global_batch_size_start = 128
delay = 0
warmup_time = 120
max_round_train_time = 120
cooldown_time = 120
[model]
max_seq_len = 7    # a line
checkpoint = "{folder}/checkpoints"
tokenizer = "bytes"
seed = 1
[model.architecture]
type = "gpt"
vocab_size = 256
layers = 2
heads = 4
width = 64
context = 16
[model.data]
type = "text"
paths = ["{folder}/lines.txt"]
[model.lr]
type = "cosine"
base_lr = 2e-3
warmup_steps = {warmup}
total_steps = {rounds}
final_lr = 1e-4
[model.method]
type = "dense"
"""


def prompt(a: int, b: int) -> str:
    return f"{a}+{b}="


def all_prompts() -> list[str]:
    return [prompt(a, b) for a in range(LARGEST + 1) for b in range(LARGEST + 1)]


def right(line: str) -> bool:
    """The rule: behind `=` stands the sum, and nothing else."""
    asked, _, answer = line.partition("=")
    return answer == f"{sum(map(int, asked.split('+'))):02}\n"


def encode(lines: Sequence[str]) -> Tensor:
    return torch.tensor([TOKENS.encode(line) for line in lines])


def decode(tokens: Tensor) -> list[str]:
    return [TOKENS.decode(row) for row in tokens.tolist()]


def written(chance: random.Random) -> str:
    a, b = chance.randint(0, LARGEST), chance.randint(0, LARGEST)
    answer = chance.randint(0, 2 * LARGEST) if chance.random() < WRONG else a + b
    return f"{prompt(a, b)}{answer:02}\n"


def learn_together(folder: Path, rounds: int) -> Path:
    """A server and two clients learn one model; gives the folder of its checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(1)
    lines = (written(chance) for _ in range(2 * BATCH * rounds + 1))
    (folder / "lines.txt").write_text("".join(lines))
    run = folkmoot.decode_run(RUN.format(folder=folder, rounds=rounds, warmup=rounds // 20))
    began = time.monotonic()
    folkmoot.train_together(run, clients=2, folder=folder / "run")
    losses = [
        entry.record.loss
        for entry in folkmoot.read_log(folder / "run" / "client-1" / "events.jsonl", "client")
        if isinstance(entry.record, ShareTrained)
    ]
    seconds = time.monotonic() - began
    print(f"the run: {rounds} rounds in {seconds:.0f} s, loss {losses[0]:.2f} -> {losses[-1]:.2f}")
    return latest(Bucket(str(folder / "checkpoints")))
