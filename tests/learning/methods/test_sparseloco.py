"""SparseLoCo's payload and its error feedback."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.core.method_config import SparseLoCoConfig
from folkmoot.learning.methods.bfloat16 import AMPLITUDE_LIMIT
from folkmoot.learning.methods.sparse_wire import CHUNK, SparseWire
from folkmoot.learning.methods.sparseloco import SparseLoCoMethod
from learning.method_run import noise


def wire_of(count: int, k: int) -> SparseWire:
    return SparseWire([("w", (count,))], k)


def plain_pack(values: list[float], k: int) -> dict[int, bool]:
    """The slow reference: places of the k largest of every chunk, and whether negative."""
    found = {}
    for start in range(0, len(values), CHUNK):
        places = range(start, min(start + CHUNK, len(values)))
        for place in sorted(places, key=lambda i: -abs(values[i]))[:k]:
            found[place] = values[place] < 0
    return found


@settings(max_examples=60)
@given(count=st.integers(1, 300), k=st.integers(1, 64), seed=st.integers(0, 2**31))
def test_the_largest_of_every_chunk_are_sent_with_their_sign(count: int, k: int, seed: int) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(seed))
    wire = wire_of(count, k)
    payload = wire.pack(values)
    assert wire.check(payload) is None
    assert len(payload) == wire.size
    place, value = wire.unpack(payload)
    sent = dict(zip(place.tolist(), (value < 0).tolist(), strict=True))
    assert sent == plain_pack(values.tolist(), k)


def test_what_is_sent_is_closer_than_one_size_for_all() -> None:
    values = torch.randn(64 * 512, generator=torch.Generator().manual_seed(0))
    wire = wire_of(values.numel(), 4)
    place, value = wire.unpack(wire.pack(values))
    chosen = values[place]
    one_size = chosen.sign() * chosen.abs().mean()
    assert (chosen - value).square().sum() < 0.5 * (chosen - one_size).square().sum()


def test_a_value_costs_a_byte_and_levels_cost_a_four_thousandth() -> None:
    wire = wire_of(1 << 20, 1)
    assert wire.size == 12 + (1 << 20) // 64 + 4 * 64
    assert 4 * (1 << 20) / wire.size > 250


def test_two_entries_for_one_place_are_refused() -> None:
    wire = wire_of(128, 2)
    payload = bytearray(wire.pack(torch.arange(128.0)))
    payload[-1] = payload[-2]
    refusal = wire.check(bytes(payload))
    assert refusal is not None
    assert refusal.reason == "order"
    assert "chunk 1" in refusal.detail


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0, AMPLITUDE_LIMIT * 4])
def test_levels_that_are_no_size_are_refused(bad: float) -> None:
    wire = wire_of(64, 1)
    payload = bytearray(wire.pack(torch.arange(64.0)))
    payload[12:14] = np.array([bad], "<f4").tobytes()[2:]
    refusal = wire.check(bytes(payload))
    assert refusal is not None
    assert refusal.reason == "level"


def small() -> SparseLoCoMethod:
    return SparseLoCoMethod(torch.nn.Linear(50, 9), SparseLoCoConfig(local_steps=2, k=3))


def scripted(method: SparseLoCoMethod, seed: int) -> bytes:
    return method.contribute(noise(method, seed), seed, 1e-2).payload


def test_nothing_is_lost_between_what_is_sent_and_what_is_kept() -> None:
    method, free = small(), small()
    free.flat.weights.copy_(method.flat.weights)
    kept = method.error.clone()
    for seed in range(4):
        payload = scripted(method, seed)
        distance, _ = free.local.run(noise(free, seed), 1e-2)
        place, value = method.wire.unpack(payload)
        whole = method.error.clone()
        whole[place] += value
        torch.testing.assert_close(whole, 0.95 * kept + distance)
        method.apply([payload], seed, 1e-2)
        free.flat.weights.copy_(method.flat.weights)
        kept = method.error.clone()


def test_a_contribution_that_did_not_arrive_comes_back() -> None:
    method = small()
    payload = scripted(method, 1)
    place, value = method.wire.unpack(payload)
    missing = method.error.clone()
    method.apply([], 1, 1e-2)
    missing[place] += value
    assert torch.equal(method.error, missing)
    before = method.error.clone()
    method.apply([payload], 1, 1e-2)
    assert torch.equal(method.error, before)
