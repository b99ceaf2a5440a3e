"""Data-parallel training on CPUs whose ranks may be killed at any moment: the result is the same.

    folkmoot elastic run --ranks 4 examples/elastic_training.py

Kill a rank (`kill -9`) while it runs: the others go on, it starts again, takes model and optimizer
from a live rank, and the losses are those of a run without the kill, bit for bit. That is because
each batch has a fixed number of shards, whose gradients are summed in a fixed order, whoever
computed them.
"""

import argparse
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from folkmoot.elastic.torch import ElasticTraining

SHARDS = 8


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))


def batch(step: int, shard: int) -> tuple[Tensor, Tensor]:
    """Examples of a function to be learnt: the same for whoever asks."""
    x = torch.randn(32, 16, generator=torch.Generator().manual_seed(step * SHARDS + shard))
    return x, x.sin().sum(dim=1, keepdim=True)


def gradient(model: nn.Module, step: int, shard: int) -> Tensor:
    """All gradients of one shard, and its loss at the end."""
    x, y = batch(step, shard)
    loss = nn.functional.mse_loss(model(x), y)
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([*(g.flatten() for g in gradients), loss.detach().reshape(1)])


def update(model: nn.Module, optimizer: torch.optim.Optimizer, mean: Tensor) -> None:
    at = 0
    for parameter in model.parameters():
        parameter.grad = mean[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
    optimizer.step()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--pause", type=float, default=0.0, help="seconds of each step")
    options.add_argument("--losses", type=Path, help="a folder for each rank's losses")
    given = options.parse_args()
    torch.set_num_threads(1)

    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with ElasticTraining(model=model, optimizer=optimizer) as training:
        for attempt in training.steps(given.steps):
            with attempt as step:
                mine = {n: gradient(model, step, n) for n in training.shards(SHARDS)}
                mean = training.sum_in_order(mine, SHARDS) / SHARDS
                update(model, optimizer, mean)
                tell(training, step, mean[-1].item(), given.losses)
                time.sleep(given.pause)


def tell(training: ElasticTraining, step: int, loss: float, folder: Path | None) -> None:
    if training.index == 0 and step % 20 == 0:
        print(f"step {step}: loss {loss:.4f}, ranks {training.iteration.members}")
    if folder is not None:
        with (folder / f"losses-{training.iteration.rank}.txt").open("a") as file:
            file.write(f"{step} {loss.hex()}\n")


if __name__ == "__main__":
    main()
