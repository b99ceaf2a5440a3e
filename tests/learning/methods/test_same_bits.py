"""All clients hold the same weights, bit for bit, after every step of a run with churn."""

import pytest
import torch

from folkmoot.core.method_config import DistroConfig
from folkmoot.learning.methods.distro import reference
from folkmoot.learning.methods.distro.cpu import backend as cpu
from folkmoot.learning.methods.distro.method import RETURNED
from learning.method_run import MethodRun


@pytest.mark.parametrize(
    ("clients", "config"),
    [
        (2, DistroConfig(k=8, treatment="sign", delay=0)),
        (3, DistroConfig(k=8, treatment="adam", delay=1, bits=16, weight_decay=0.1)),
        (7, DistroConfig(k=4, treatment="norm", delay=2)),
        (3, DistroConfig(k=8, treatment="orthogonal", delay=1)),
        (5, DistroConfig(k=8, treatment="orthogonal", delay=1, weigh_alignment=True)),
    ],
    ids=lambda x: (
        x
        if isinstance(x, int)
        else f"{x.treatment}-delay{x.delay}-{x.bits}bit" + "-weighed" * x.weigh_alignment
    ),
)
def test_clients_agree_after_each_of_300_steps_with_churn(clients, config, monkeypatch):
    monkeypatch.setattr(cpu, "_LEAST", 512)  # several batches, so that threads have work
    run = MethodRun(config, clients)
    first = None
    for _ in range(300):
        run.round(missing=0.1)
        assert len({c.root() for c in run.clients}) == 1, f"diverged at step {run.step - 1}"
        first = first or run.loss
        change = run.random.random()
        if change < 0.03 and len(run.clients) > 2:
            run.leave()
        elif change > 0.97 and len(run.clients) < clients + 2:
            run.join()
    assert run.named > clients, "nobody joined: the test would not have tested churn"
    assert run.loss < 0.7 * first, "equal, but nothing was learned"


def test_half_of_a_contribution_that_got_lost_is_in_the_momentum_again():
    """Error feedback covers losses: what nobody applied is not forgotten."""
    run = MethodRun(DistroConfig(k=8, delay=0), 1)
    client = run.clients[0]
    client.contribute(0)
    (flying,) = client.method.in_flight
    expected = client.method.momentum.clone()
    reference.add_entries(client.method.plan, expected, flying.index, flying.value, RETURNED)
    assert not torch.equal(client.method.momentum, expected)
    client.method.apply([], 0, 0.1)
    assert torch.equal(client.method.momentum, expected)
    assert client.method.in_flight == []
