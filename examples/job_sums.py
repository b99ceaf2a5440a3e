"""A language of sums, and the model that clients learn of it together, before anybody rewards it.

A line is `7+5=12`. Half of the lines are wrong: a model that has read them writes lines of the
right form, and often enough the right answer, as one of many that it holds possible.
"""

import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from folkmoot.core.method_config import DenseConfig
from folkmoot.core.model_config import GptConfig
from folkmoot.core.schedule import Cosine
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning import methods
from folkmoot.learning.checkpoints.fetch import fetch
from folkmoot.learning.checkpoints.save import save
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.methods.protocol import Contribution
from folkmoot.learning.models import build

LARGEST, WRONG = 9, 0.5
PROMPT, ANSWER = 4, 3  # tokens of `7+5=` and of its answer with the end of the line
CONFIG = GptConfig(vocab_size=256, layers=2, heads=4, width=64, context=16)
TOKENS = byte_tokenizer()
BATCH, LR = 64, 2e-3


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


class Client:
    """One member: a model, a method to exchange what it learns, and lines of its own to read."""

    def __init__(self, number: int) -> None:
        self.model = build(CONFIG, seed=1, device="cpu")
        self.method = methods.build(self.model, DenseConfig())
        self.lines = written(random.Random(number))

    def train(self, step: int, lr: float) -> Contribution:
        lines = encode([next(self.lines) for _ in range(BATCH)]).numpy()
        return self.method.contribute(lambda _: loss_and_gradients(self.model, lines), step, lr)


def written(chance: random.Random) -> Iterator[str]:
    while True:
        a, b = chance.randint(0, LARGEST), chance.randint(0, LARGEST)
        answer = chance.randint(0, 2 * LARGEST) if chance.random() < WRONG else a + b
        yield f"{prompt(a, b)}{answer:02}\n"


def learn_together(folder: Path, rounds: int) -> Path:
    """Two clients learn one model; gives the folder of its checkpoint."""
    torch.set_num_threads(1)
    clients = [Client(number) for number in range(2)]
    schedule = Cosine(base_lr=LR, warmup_steps=rounds // 20, total_steps=rounds, final_lr=LR / 20)
    for step in range(rounds):
        lr = schedule.lr(step)
        made = [client.train(step, lr) for client in clients]
        for client in clients:
            client.method.apply([one.payload for one in made], step, lr)
        if step % 100 == 0 or step == rounds - 1:
            print(f"round {step:3}  loss {sum(one.loss for one in made) / 2:.2f}", flush=True)
    store = Bucket(str(folder))
    return fetch(store, save(store, rounds, clients[0].model, tokenizer=TOKENS))
