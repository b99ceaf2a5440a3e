"""Elastic workers of these tests. They leave traces in the folder that is named by WHERE."""

import os
import signal
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from folkmoot.unified.api import Worker, rpc
from folkmoot.unified.backends.elastic import node_check

NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT")


def write(name: str, text: str) -> None:
    with (Path(os.environ["WHERE"]) / name).open("a") as file:
        file.write(f"{text}\n")


def train() -> float:
    """Sum the ranks, and say which world that was. Its data comes from a process of its own."""
    loaded = DataLoader(range(8), batch_size=2, num_workers=1)  # type: ignore[arg-type,var-annotated]
    assert sum(int(batch.sum()) for batch in loaded) == 28
    dist.init_process_group("gloo")
    total = torch.tensor(float(dist.get_rank() + 1))
    dist.all_reduce(total)
    write(f"world-{dist.get_rank()}", " ".join(os.environ[name] for name in NAMES))
    dist.destroy_process_group()
    return float(total)


def train_until_killed() -> float:
    """In the first world rank 1 dies in the middle, and the others wait for it in an all-reduce."""
    mortal = (os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]) == ("1", "0")
    dist.init_process_group()
    write(f"world-{dist.get_rank()}", " ".join(os.environ[name] for name in NAMES))
    step = torch.zeros(1)
    for _ in range(5):
        if mortal and step.item() >= 4:
            os.kill(os.getpid(), signal.SIGKILL)
        one = torch.ones(1)
        dist.all_reduce(one)
        step += one
    return float(step)


def wait_in_world() -> None:
    """Tell the world's size, until the file `finish` is there."""
    dist.init_process_group()
    size = torch.ones(1)
    dist.all_reduce(size)
    write(f"sizes-{dist.get_rank()}", str(int(size.item())))
    while not (Path(os.environ["WHERE"]) / "finish").exists():
        time.sleep(0.01)


class HangsOnce(Worker):
    """The first process of rank 1 hangs when it is checked."""

    def __init__(self) -> None:
        if self.actor.rank == 1 and self.actor.incarnation == 1:
            node_check.check = lambda **_: threading.Event().wait()  # type: ignore[assignment]

    def start(self) -> float:
        return train()


class Learner(Worker):
    """As an actor of reinforcement learning: it is called."""

    def start(self) -> None:
        dist.init_process_group("gloo")
        super().start()

    @rpc
    def learn(self, value: float) -> float:
        while not dist.is_initialized():
            time.sleep(0.01)
        mean = torch.tensor(value + dist.get_rank())
        dist.all_reduce(mean)
        return float(mean) / dist.get_world_size()


class Teacher(Worker):
    def start(self) -> list[float]:
        taught = self.group("learner", timeout=60).call(Learner.learn, 1.0).result()
        write("taught", str(taught))
        return taught


if __name__ == "__main__":
    train()
