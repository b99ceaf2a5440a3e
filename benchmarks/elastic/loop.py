"""The loop that every system of benchmarks/elastic_recovery.py trains: one small model on the CPU.

After each step a rank writes one line into the benchmark's pipe: when, who it is and with whom.
Needs torch and nothing of Folkmoot, so that a peer's virtual environment runs it as well.
"""

import os
import time

import torch
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class Loop:
    """A model, its data and its optimizer; `gradients` and `step` with a collective between."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 64)
        )
        self.data = torch.randn(64, 64, generator=torch.Generator().manual_seed(rank))
        self._pipe = os.open(os.environ["BENCH_PIPE"], os.O_WRONLY)

    def gradients(self) -> torch.Tensor:
        self.model.zero_grad()
        ((self.model(self.data) - self.data) ** 2).mean().backward()
        return parameters_to_vector(p.grad for p in self.model.parameters())

    def step(self, mean: torch.Tensor) -> None:
        with torch.no_grad():
            weights = parameters_to_vector(self.model.parameters())
            vector_to_parameters(weights - 0.1 * mean, self.model.parameters())

    def report(self, rank: int, members: int, attempt: int = 0) -> None:
        """A step is complete: its results are in the model, and the next one may begin."""
        self.say("step", rank, members, attempt)

    def say(self, what: str, rank: int, members: int, attempt: int) -> None:
        words = (what, time.monotonic(), os.getpid(), rank, members, attempt)
        os.write(self._pipe, (" ".join(map(str, words)) + "\n").encode())  # one write: whole
