"""Elastic data-parallel training on CPUs: a worker dies, and comes back.

`train` is an ordinary script for torchrun: it calls `init_process_group()`, wraps its model in
DistributedDataParallel, and saves a checkpoint now and then. As a job it needs no change. One of
the workers is killed in the middle: it comes back, the role starts anew from the newest checkpoint,
and since the ranks share the same batches in any world, it learns as if nothing had been.

    python examples/job_elastic.py                 # three workers, of which one is killed
    python examples/job_elastic.py --nobody-dies
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from job_watch import add_where, run_here
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from folkmoot.core.job import JobSpec
from folkmoot.core.job import messages as m
from folkmoot.host.event_log import LogReader, records_in
from folkmoot.unified.api import JobBuilder
from folkmoot.unified.master import events

# Examples in one step, however many workers share them.
BATCH, STEPS, SAVE_EVERY = 96, 120, 10


def train(folder: str, dies_at: int = -1) -> float:
    """Learn a sum of sines. In the first world rank 1 dies at step `dies_at`."""
    dist.init_process_group()
    model, optimizer, step = load(Path(folder))
    parallel = DistributedDataParallel(model)
    loss = torch.zeros(())
    while step < STEPS:
        if step == dies_at and (os.environ["RANK"], restarts()) == ("1", 0):
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = my_share(step)
        loss = nn.functional.mse_loss(parallel(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % SAVE_EVERY == 0 and dist.get_rank() == 0:
            save(Path(folder), model, optimizer, step)
    dist.destroy_process_group()
    return loss.item()


def restarts() -> int:
    return int(os.environ["TORCHELASTIC_RESTART_COUNT"])


def my_share(step: int) -> tuple[Tensor, Tensor]:
    """This rank's part of the batch: together, the ranks have the same one in any world."""
    x = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))
    mine = x[dist.get_rank() :: dist.get_world_size()]
    return mine, mine.sin().sum(dim=1, keepdim=True)


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))


def load(folder: Path) -> tuple[nn.Module, torch.optim.Optimizer, int]:
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    if not (folder / "checkpoint").exists():
        return model, optimizer, 0
    saved = torch.load(folder / "checkpoint", weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return model, optimizer, saved["step"]


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, folder / "checkpoint.new")
    (folder / "checkpoint.new").replace(folder / "checkpoint")


def make_job(folder: Path, workers: int, dies_at: int) -> JobSpec:
    # Errors of the others are told from the death behind them even if that is heard much later.
    job = JobBuilder("elastic").global_env(OMP_NUM_THREADS="1").blame_grace(10.0)
    role = job.train("job_elastic:train").elastic(1, workers)
    role.config(folder=str(folder), dies_at=dies_at).resource(cpu=0.5)
    return job.build()


def tell(log: Path) -> None:
    """What happened, from the job's event log."""
    for entry in LogReader(log, records_in(m, events)).new():
        match entry.record:
            case m.Formed(_, generation, world):
                print(f"world {generation}: {', '.join(world)}")
            case m.Blamed(actor=actor, how=how):
                print(f"{actor} {how}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Elastic training with a death and a return.")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--nobody-dies", action="store_true")
    add_where(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.monotonic()
        dies_at = -1 if options.nobody_dies else STEPS // 2 + 5
        job = make_job(folder, options.workers, dies_at)
        outcome = run_here(job, folder / "job", options.ray_address)
        tell(folder / "job" / "events.jsonl")
        print(f"{outcome.reason} after {time.monotonic() - began:.1f} s")
        saved = torch.load(folder / "checkpoint", weights_only=True)
    print(f"after {saved['step']} steps the loss is {loss_of(saved['model']):.6f}")
    return outcome.exit_code


def loss_of(weights: dict[str, Tensor]) -> float:
    """On examples that were not learnt from."""
    model = build()
    model.load_state_dict(weights)
    x = torch.randn(1000, 8, generator=torch.Generator().manual_seed(STEPS))
    with torch.no_grad():
        return nn.functional.mse_loss(model(x), x.sin().sum(dim=1, keepdim=True)).item()


if __name__ == "__main__":
    sys.exit(main())
