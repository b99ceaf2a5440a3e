"""A worker that imports torch and steps until it is told to end: the same loop in every system."""

import os
import sys
import time
from pathlib import Path

import torch


def steps(folder: str, rank: int) -> None:
    """Each step is a line with its time and process."""
    with (Path(folder) / f"{rank}.steps").open("a", buffering=1) as file:
        while not (Path(folder) / "finish").exists():
            torch.ones(8).sum()
            file.write(f"{time.time()} {os.getpid()}\n")
            time.sleep(0.02)


def ours(folder: str) -> None:
    from folkmoot.unified.current import current_worker

    steps(folder, current_worker().rank)


def ray_train(config: dict[str, str]) -> None:
    from ray import train

    steps(config["folder"], train.get_context().get_world_rank())


if __name__ == "__main__":
    steps(sys.argv[1], int(os.environ["RANK"]))
