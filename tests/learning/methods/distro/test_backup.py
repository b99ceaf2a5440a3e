"""Weights come back from a look-ahead with every bit, whatever they are and however it ends."""

import numpy as np
import pytest
import torch

from folkmoot.core.method_config import DistroConfig
from folkmoot.learning.methods.distro import DistroMethod, reference
from folkmoot.learning.methods.distro.backup import LOW_BYTE, empty_backup
from folkmoot.learning.methods.distro.cpu import backend as cpu
from folkmoot.learning.methods.distro.plan import make_plan
from folkmoot.learning.methods.distro.treatment import SIGN

EVERY_KIND = np.array(
    [0, 1 << 31, 1, 0x807FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFFFFFFF, 0x3F8000FF],
    np.uint32,
)
"""Zeros, subnormals, infinities, what is not a number, and one with a full lowest byte."""


def weights_of_every_kind(size: int) -> torch.Tensor:
    draw = np.random.default_rng(0).integers(0, 1 << 32, size, np.uint32)
    draw[: len(EVERY_KIND)] = EVERY_KIND
    return torch.from_numpy(draw.view(np.float32))


def bits(x: torch.Tensor) -> torch.Tensor:
    return x.view(torch.int32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("backend", [reference, cpu])
def test_all_but_the_lowest_byte_may_change_and_every_bit_returns(backend, threads):
    torch.set_num_threads(threads)
    before = weights_of_every_kind(10_001)
    now, backup = before.clone(), empty_backup(before)
    backend.back_up(now, backup)
    bits(now).bitwise_xor_(0x5A5A5A00)
    backend.restore(now, backup)
    assert torch.equal(bits(now), bits(before))


@pytest.mark.parametrize("backend", [reference, cpu])
def test_a_look_ahead_moves_by_what_it_should_and_leaves_the_lowest_byte(backend):
    plan = make_plan([("a", (128, 64)), ("b", (100,))], 64, 8, 1)
    draw = torch.Generator().manual_seed(0)
    before, momentum = (torch.randn(plan.size, generator=draw) for _ in "wm")
    now = before.clone()
    backend.look_ahead(plan, now, momentum, 0.25, SIGN)
    assert torch.equal(bits(now) & LOW_BYTE, bits(before) & LOW_BYTE)
    by = (before - now).abs()
    assert ((by - 0.25).abs() <= 2.0**-15 * (before.abs() + 0.25)).all()


@pytest.mark.parametrize("backend", [reference, cpu])
def test_weights_are_back_when_a_closure_fails(backend):
    torch.manual_seed(0)
    module = torch.nn.Linear(128, 64)
    method = DistroMethod(module, DistroConfig(delay=1))
    method.backend = backend
    before = bits(method.flat.weights).clone()

    def gradients(_: int) -> float:
        method.flat.grads.normal_()
        return 0.0

    def failing(_: int) -> float:
        assert not torch.equal(bits(method.flat.weights), before), "it should look ahead"
        raise OSError("no such shard")

    method.contribute(gradients, 0, 0.1)
    with pytest.raises(OSError, match="no such shard"):
        method.contribute(failing, 1, 0.1)
    assert torch.equal(bits(method.flat.weights), before)
