"""A rank under torchrun: a plain loop that the agent ends and starts again."""

import os

import torch.distributed as dist
from loop import Loop

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
loop, attempt = Loop(rank), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
while True:
    total = loop.gradients()
    dist.all_reduce(total)
    loop.step(total / world)
    loop.report(rank, world, attempt)
