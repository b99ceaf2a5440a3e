"""The compiled kernels and plain torch produce the same bits, for every shape, k and treatment."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.method_config import DistroConfig
from folkmoot.learning.methods.distro import reference
from folkmoot.learning.methods.distro.cpu import backend as cpu
from folkmoot.learning.methods.distro.cpu.topk import topk
from folkmoot.learning.methods.distro.plan import make_plan
from folkmoot.learning.methods.distro.treatment import ORTHOGONAL, SIGN, stepping

SHAPES = [("a", (128, 192)), ("b", (100,)), ("c", (29, 64)), ("d", (2, 3, 48, 50)), ("e", ()),
          ("f", (7,)), ("g", (64,)), ("h", (257, 24))]  # fmt: skip
COUNTS = [(1, 1, 1), (16, 8, 31)]
SCALE, DECAY = float(np.float32(0.3)), float(np.float32(0.95))


def single(x):
    return float(np.float32(x))


@pytest.mark.parametrize("bits", [1, 16])
@pytest.mark.parametrize(("k", "threads"), [(1, 1), (8, 2), (40, 1), (200, 2)])
def test_contributions_look_ahead_and_application_agree(k, bits, threads, monkeypatch):
    monkeypatch.setattr(cpu, "_LEAST", 4096)
    torch.set_num_threads(threads)
    plan = make_plan(SHAPES, 64, k, bits)
    draw = torch.Generator().manual_seed(k * bits)
    start = torch.randn(plan.size, generator=draw)
    held = [start.clone(), start.clone()]
    weights = [torch.ones(plan.size), torch.ones(plan.size)]
    payloads, flying = [], []
    for _ in range(3):
        grad = torch.randn(plan.size, generator=draw)
        grad[: 29 * 64] = 0
        made = [
            b.compress(plan, grad, m, SCALE, DECAY)
            for b, m in zip((reference, cpu), held, strict=True)
        ]
        assert (made[0][0] == made[1][0]).all()
        assert (made[0][1] == made[1][1]).all()
        assert torch.equal(*held)
        flying.append(made[0])
        payloads.append(cpu.pack(plan, *made[0]))
    for backend, w, m in zip((reference, cpu), weights, held, strict=True):
        for along in (SIGN, ORTHOGONAL):
            backend.look_ahead(plan, w, m, single(0.01), along)
        backend.add_entries(plan, m, *flying[0], DECAY)
    assert torch.equal(*weights)
    assert torch.equal(*held)
    for treatment, counts in product(("sign", "adam", "norm", "orthogonal"), COUNTS):
        how = stepping(DistroConfig(treatment=treatment, weight_decay=0.1), counts, 3, 0.01)
        second = [torch.full((plan.size,), 0.5) if treatment == "adam" else None for _ in "ab"]
        for backend, w, v in zip((reference, cpu), weights, second, strict=True):
            backend.apply(plan, w, payloads, v, how)
        assert torch.equal(*weights), treatment
        assert second[0] is None or torch.equal(*second)


@given(st.data())
def test_the_k_largest_are_those_a_stable_sort_finds(data):
    n = data.draw(st.sampled_from([1, 2, 7, 64, 100, 1856, 4096]))
    k = data.draw(st.integers(1, n))
    levels = data.draw(st.sampled_from([1, 2, 5, 1000, 10**6]))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    x = rng.integers(-levels, levels + 1, n).astype(np.float32) / 7
    chosen = np.empty(k, np.int32)
    topk(x.view(np.int32), k, np.empty((3, n), np.int32), chosen)
    expected = np.sort(np.argsort(-np.abs(x), kind="stable")[:k])
    assert (chosen == expected).all()


def test_one_payload_of_ones_steps_by_the_learning_rate():
    """A known answer: the constant coefficient alone moves every weight of its chunk alike."""
    plan = make_plan([("w", (64, 64))], 64, 1, 1)
    payload = cpu.pack(plan, np.zeros(1, np.int32), np.array([-3.0], np.float32))
    for backend in (reference, cpu):
        weights = torch.zeros(plan.size)
        how = stepping(DistroConfig(treatment="sign"), (1, 1), 1, 0.25)
        backend.apply(plan, weights, [payload] * 2, None, how)
        assert (weights == 0.25).all()
