"""Stop at any step, reload, continue: the same bits as the run that never stopped."""

import io
import random

import pytest
import torch

from folkmoot.core.method_config import DenseConfig, DiLoCoConfig, DistroConfig, SparseLoCoConfig
from learning.method_run import LR, Client, MethodRun, closure

CONFIGS = [
    DenseConfig(),
    DiLoCoConfig(local_steps=3),
    SparseLoCoConfig(local_steps=3),
    DistroConfig(k=8, delay=0, treatment="sign"),
    DistroConfig(k=8, delay=1, treatment="orthogonal"),
    DistroConfig(k=8, delay=2, treatment="adam", bits=16),
    DistroConfig(k=8, delay=3, treatment="norm"),
]


def reloaded(client: Client, config) -> Client:
    """A new process's view of a client: what was on disk, and its place in the data."""
    file = io.BytesIO()
    torch.save((client.model.state_dict(), client.method.state_dict()), file)
    file.seek(0)
    weights, state = torch.load(file, weights_only=True)
    again = Client(client.name, config)
    again.model.load_state_dict(weights)
    again.method.load_state_dict(state)
    again.draw.set_state(client.draw.get_state())
    return again


@pytest.mark.parametrize("config", CONFIGS, ids=lambda r: f"{type(r).__name__}-{r}"[:60])
def test_a_run_stopped_at_random_steps_has_the_bits_of_one_that_never_stopped(config):
    steady, broken = MethodRun(config, 2), MethodRun(config, 2)
    stops = random.Random(7).sample(range(1, 30), 5)
    for step in range(30):
        steady.round(missing=0.2)
        broken.round(missing=0.2)
        assert steady.sent[step] == broken.sent[step]
        assert steady.clients[0].root() == broken.clients[0].root()
        if step in stops:
            broken.clients = [reloaded(c, config) for c in broken.clients]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda r: f"{type(r).__name__}-{r}"[:60])
def test_an_aborted_contribution_leaves_no_trace(config):
    class Cancelled(Exception):
        pass

    run = MethodRun(config, 2)
    for _ in range(5):
        run.round()
    client = run.clients[0]
    weights = client.root()
    state = {k: v.clone() for k, v in client.method.state_dict().items()}
    train = closure(client.model, client.draw)
    moved = []

    def cancelled(i: int) -> float:
        train(i)
        moved.append(client.root() != weights)
        raise Cancelled

    place = client.draw.get_state()
    with pytest.raises(Cancelled):
        client.method.contribute(cancelled, 5, LR)
    looks_ahead = isinstance(config, DistroConfig) and config.delay > 0
    assert moved == [looks_ahead]
    assert client.root() == weights
    after = client.method.state_dict()
    assert state.keys() == after.keys()
    assert all(torch.equal(state[k], after[k]) for k in state)

    client.draw.set_state(place)
    again = reloaded(client, config)
    assert again.contribute(5) == client.contribute(5)


def test_a_gradient_that_is_not_finite_is_an_error_that_changes_nothing():
    run = MethodRun(DistroConfig(k=8), 1)
    run.round()
    client = run.clients[0]
    weights, momentum = client.root(), client.method.momentum.clone()

    def broken(_: int) -> float:
        (client.model[0].weight.sum() * float("nan")).backward()
        return float("nan")

    with pytest.raises(FloatingPointError, match="not finite"):
        client.method.contribute(broken, 1, LR)
    assert client.root() == weights
    assert torch.equal(client.method.momentum, momentum)


def test_a_module_moved_after_the_method_was_built_is_an_error():
    client = Client(0, DistroConfig())
    client.model[0].weight.data = client.model[0].weight.data.clone()
    with pytest.raises(RuntimeError, match=r"0\.weight no longer lives"):
        client.contribute(0)
