"""Training in PyTorch with real processes: kills change nothing in the result."""

import importlib.util
import re
from collections import defaultdict
from pathlib import Path
from types import ModuleType

import pytest
import torch

from folkmoot.elastic import GlobalIteration
from folkmoot.elastic.torch import ElasticTraining
from support.commands import elastic_run
from support.examples import EXAMPLES

EXAMPLE = EXAMPLES / "elastic_training.py"
# The example's loop; each rank kills itself once, at another point of a step, and is started again.
# It waits until all are there: when the last that has the state dies, nobody can pass it on. The
# others go on slowly once it is ready to join: there are enough steps for all that is to come.
KILLED = """
import os, pathlib, signal, sys, time
sys.path.insert(0, {examples!r})
import torch
from elastic_training import *

def ready(rank):
    return pathlib.Path({folder!r}, f"ready-{{rank}}")

def die(training, step, rank, first):
    it = training.iteration
    if (it.rank, it.incarnation, training.size) == (rank, 1, 3) and step >= first:
        ready(rank).unlink()
        os.kill(os.getpid(), signal.SIGKILL)

torch.set_num_threads(1)
model = build()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
ready(os.environ["RANK"]).touch()
with ElasticTraining(model=model, optimizer=optimizer) as training:
    for attempt in training.steps({steps}):
        with attempt as step:
            mine = {{n: gradient(model, step, n) for n in training.shards(SHARDS)}}
            die(training, step, 1, 5)
            mean = training.sum_in_order(mine, SHARDS) / SHARDS
            die(training, step, 2, 15)
            update(model, optimizer, mean)
            tell(training, step, mean[-1].item(), pathlib.Path({folder!r}))
            die(training, step, 0, 25)
        while not all(ready(rank).exists() for rank in range(3)):
            time.sleep(0.01)
        time.sleep(0.0 if training.size == 3 else 0.25)
"""


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("elastic_training", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain_losses(example: ModuleType, steps: int) -> list[str]:
    """The same training as one plain loop, with nothing of ours."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    model = example.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        total = sum(example.gradient(model, step, shard) for shard in range(example.SHARDS))
        mean = total / example.SHARDS
        example.update(model, optimizer, mean)
        losses.append(mean[-1].item().hex())
    torch.set_num_threads(threads)
    return losses


def read_losses(folder: Path) -> dict[int, set[str]]:
    """What all ranks saw of each step."""
    found = defaultdict(set)
    for file in folder.glob("losses-*.txt"):
        for line in file.read_text().splitlines():
            step, loss = line.split()
            found[int(step)].add(loss)
    return found


def test_the_example_gives_the_losses_of_a_plain_loop(
    example: ModuleType, tmp_path: Path, tcp_store_url: str
) -> None:
    options = ["--steps=40", f"--losses={tmp_path}"]
    done = elastic_run("-n", "2", f"--store={tcp_store_url}", EXAMPLE, *options)
    assert "[0] step 20: loss" in done.stdout
    expected = plain_losses(example, 40)
    assert read_losses(tmp_path) == {step: {loss} for step, loss in enumerate(expected)}


def test_kills_inside_a_step_change_no_bit_of_the_losses(
    example: ModuleType, tmp_path: Path, tcp_store_url: str
) -> None:
    steps = 200
    script = tmp_path / "killed.py"
    folders = {"examples": str(EXAMPLE.parent), "folder": str(tmp_path)}
    script.write_text(KILLED.format(steps=steps, **folders))
    rules = ["--heartbeat-interval=500", "--heartbeat-timeout=60000"]
    done = elastic_run("-n", "3", f"--store={tcp_store_url}", *rules, script)
    for rank in range(3):
        assert f"rank {rank} was ended by SIGKILL; started again (1 of 3)" in done.stderr
    assert "step 5 is tried again with the ranks that are left" in done.stderr
    expected = plain_losses(example, steps)
    assert read_losses(tmp_path) == {step: {loss} for step, loss in enumerate(expected)}
    # Rank 1 came back, and did not begin from the start.
    its_own = [
        int(n) for n in re.findall(r"^(\d+) ", (tmp_path / "losses-1.txt").read_text(), re.M)
    ]
    assert its_own == sorted(set(its_own))
    assert its_own[:5] == [0, 1, 2, 3, 4]
    assert its_own[5] >= 5


def alone(prefix: str, model: torch.nn.Module) -> ElasticTraining:
    """A training of one rank."""
    return ElasticTraining(GlobalIteration(f"memory://{prefix}", 0, 1), model=model)


def test_an_attempt_must_be_begun(store_prefix: str) -> None:
    with (
        alone(store_prefix, torch.nn.Linear(1, 1)) as training,
        pytest.raises(RuntimeError, match="with attempt as step"),
    ):
        for _ in training.steps(2):
            pass


def test_an_error_of_the_script_itself_is_raised(store_prefix: str) -> None:
    model = torch.nn.Linear(1, 1)
    with alone(store_prefix, model) as training:
        for attempt in training.steps(2):
            with pytest.raises(RuntimeError, match="mat1 and mat2"), attempt:
                model(torch.ones(1, 2))
            break


def test_shards_are_for_every_rank(store_prefix: str) -> None:
    with alone(store_prefix, torch.nn.Linear(1, 1)) as training:
        for attempt in training.steps(1):
            with attempt as step:
                assert (step, training.shards(3)) == (0, [0, 1, 2])
                tensors = {shard: torch.full((2,), float(shard)) for shard in range(3)}
                assert training.sum_in_order(tensors, 3).tolist() == [3.0, 3.0]
                with pytest.raises(ValueError, match="0 shards are too few for 1 ranks"):
                    training.shards(0)
        assert training.step == 1


def test_there_must_be_something_to_train() -> None:
    with pytest.raises(ValueError, match="name what is trained"):
        ElasticTraining(GlobalIteration("memory://x", 0, 1))
