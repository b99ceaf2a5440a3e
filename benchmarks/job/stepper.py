"""The same loop in workers that import torch."""

import os
import sys

import plain_stepper
import torch


def steps(folder: str, rank: int) -> None:
    plain_stepper.steps(folder, rank, lambda: torch.ones(8).sum())


def ours(folder: str) -> None:
    from folkmoot.unified.current import current_worker

    steps(folder, current_worker().rank)


def ray_train(config: dict[str, str]) -> None:
    from ray import train

    steps(config["folder"], train.get_context().get_world_rank())


if __name__ == "__main__":
    steps(sys.argv[1], int(os.environ["RANK"]))
