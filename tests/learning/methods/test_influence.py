"""Nobody decides for all: not by shouting, and not by claiming a large share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.method_config import (
    DenseConfig,
    DiLoCoConfig,
    DistroConfig,
    MethodConfig,
    SparseLoCoConfig,
)
from folkmoot.learning.methods.bfloat16 import from_bfloat16, to_bfloat16
from folkmoot.learning.methods.distro import reference, wire
from folkmoot.learning.methods.distro.cpu import backend as cpu
from folkmoot.learning.methods.frame import HEADER
from folkmoot.learning.methods.influence import (
    ALIGNED,
    LEAST,
    MOST,
    alignment_weights,
    sample_weights,
)
from folkmoot.learning.methods.sketch import of_values
from learning.method_run import Client

LOUD = 2.0**20
CONFIGS: list[MethodConfig] = [
    *(DistroConfig(k=8, bits=16, delay=0, treatment=t) for t in ("sign", "norm", "orthogonal")),
    DenseConfig(optimizer="sgd", clip=0.0),
    DiLoCoConfig(local_steps=2, outer_momentum=0.0),
    SparseLoCoConfig(local_steps=2, k=4),
]
every_method = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: type(c).__name__)


def louder(client: Client, payload: bytes, factor: float) -> bytes:
    """The same payload with every value times `factor`, a power of two."""
    raw = np.frombuffer(payload, np.uint8).copy()

    def scale(part: np.ndarray) -> None:
        part[:] = to_bfloat16(from_bfloat16(part.astype(np.uint16)) * np.float32(factor))

    match client.method.config:
        case DistroConfig():
            for at in wire.sections(client.method.plan):
                scale(raw[at.amplitudes : at.end].view("<u2"))
        case SparseLoCoConfig():
            scale(raw[HEADER : client.method.wire.entries].view("<u2"))
        case _:
            raw[HEADER:].view("<f4")[:] *= np.float32(factor)
    return raw.tobytes()


def step_along(
    config: MethodConfig, payloads: list[bytes], samples: tuple[int, ...] = (), backend: Any = None
) -> torch.Tensor:
    client = Client(0, config)
    if backend is not None:
        client.method.backend = backend
    before = client.method.flat.weights.clone()
    client.method.apply(payloads, 0, 1e-2, samples)
    return client.method.flat.weights - before


@every_method
def test_a_payload_a_million_times_louder_counts_like_the_others(config: MethodConfig) -> None:
    clients = [Client(n, config) for n in range(5)]
    made = [client.contribute(0)[0] for client in clients]
    honest = step_along(config, made)
    shouted = step_along(config, [*made[:4], louder(clients[4], made[4], LOUD)])
    assert shouted.norm() < 1.5 * honest.norm()
    alike = torch.cosine_similarity(honest, shouted, dim=0)
    assert alike > (0.99 if isinstance(config, DistroConfig) else 0.9)


@pytest.mark.parametrize("backend", [reference, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("bits", [1, 16])
def test_in_distro_loudness_changes_no_bit(bits: int, backend: Any) -> None:
    config = DistroConfig(k=8, bits=bits, delay=0)
    clients = [Client(n, config) for n in range(3)]
    made = [client.contribute(0)[0] for client in clients]
    shouted = [louder(clients[0], made[0], LOUD) if bits == 16 else made[0], *made[1:]]
    quiet = step_along(config, made, backend=backend)
    assert torch.equal(quiet, step_along(config, shouted, backend=backend))


def test_an_audit_looks_at_the_direction_of_a_payload_not_at_its_loudness() -> None:
    clients = [Client(n, DistroConfig(k=8, bits=16, delay=0)) for n in range(3)]
    made = [client.contribute(0)[0] for client in clients]
    contrast = clients[0].method.contrast
    shouted = [louder(client, one, LOUD) for client, one in zip(clients, made, strict=True)]
    as_it_is = contrast(made[0], made[1:])
    assert torch.equal(as_it_is, contrast(shouted[0], made[1:]))
    assert torch.equal(as_it_is, contrast(made[0], shouted[1:]))


@every_method
def test_a_payload_of_more_samples_weighs_more_and_not_without_bound(config: MethodConfig) -> None:
    made = [Client(n, config).contribute(0)[0] for n in range(3)]
    alike = step_along(config, made)
    assert torch.equal(alike, step_along(config, made, (5, 5, 5)))
    more, most = (step_along(config, made, (5, 5, n)) for n in (10, 1_000_000))
    assert not torch.equal(alike, more)
    assert torch.equal(more, most)


@given(st.lists(st.integers(1, 2**40), min_size=1, max_size=50))
def test_weights_follow_samples_within_a_factor_of_four(samples: list[int]) -> None:
    weights = sample_weights(samples, len(samples))
    assert max(weights) * LEAST <= min(weights) * MOST
    pairs = sorted(zip(samples, weights, strict=True))
    assert [w for _, w in pairs] == sorted(weights)
    assert sum(weights) < 2**24 // max(1, len(samples))


def test_shares_that_do_not_fit_the_payloads_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 shares were named for 3 payloads"):
        sample_weights([1, 2], 3)


def sketches_of(noise: list[float], agree: float = 1.0) -> list[bytes]:
    """Of results that go where all go, each with so much of its own."""
    draw = np.random.default_rng(0)
    everybody = agree * draw.standard_normal(20_000)
    made = [everybody + n * draw.standard_normal(20_000) for n in noise]
    return [of_values(None, one.astype(np.float32)) for one in made]


def test_who_trained_less_weighs_little_from_the_first_round_on() -> None:
    # Noise of 1.8 instead of 1 is seven tenths of the usual alignment, as a tenth of a share is.
    *honest, first, second, third = alignment_weights(sketches_of([1.0] * 7 + [1.8] * 3))
    assert min(honest) >= ALIGNED / 2
    assert max(first, second, third) <= ALIGNED / 4


def test_alignments_weigh_the_same_in_any_order() -> None:
    made = sketches_of([0.5, 1.0, 1.1, 1.2, 1.3, 1.5, 3.0])
    weights = alignment_weights(made)
    assert len(set(weights)) > 2
    assert alignment_weights(made[::-1]) == weights[::-1]


def test_alignments_that_say_nothing_weigh_alike() -> None:
    assert len(set(alignment_weights(sketches_of([1.0] * 6, agree=0.0)))) == 1
    assert len(set(alignment_weights(sketches_of([1.0, 9.0])))) == 1
    assert len(set(alignment_weights([bytes(len(sketches_of([1.0])[0]))] * 4))) == 1


def test_of_more_results_than_are_compared_the_last_weighs_by_its_alignment_too() -> None:
    weights = alignment_weights(sketches_of([1.0] * 150 + [3.0]))
    assert min(weights[:-1]) >= ALIGNED / 2
    assert weights[-1] == 0


@pytest.mark.parametrize("backend", [reference, cpu], ids=["reference", "cpu"])
@pytest.mark.parametrize("bits", [1, 16])
def test_what_goes_against_everybody_changes_no_bit_where_alignment_is_weighed(
    bits: int, backend: Any
) -> None:
    config = DistroConfig(k=8, bits=bits, delay=0, weigh_alignment=True)
    one = Client(0, config)
    payload = one.contribute(0)[0]
    index, value = wire.unpack(one.method.plan, payload)
    against = wire.pack(one.method.plan, index, -value)
    alone = step_along(config, [payload] * 4, backend=backend)
    assert torch.equal(alone, step_along(config, [*[payload] * 4, against], backend=backend))
    unweighed = DistroConfig(k=8, bits=bits, delay=0)
    assert torch.equal(alone, step_along(unweighed, [payload] * 4, backend=backend))


def test_both_backends_weigh_alignment_and_samples_to_the_same_bits() -> None:
    config = DistroConfig(k=8, delay=0, weigh_alignment=True)
    made = [Client(n, config).contribute(0)[0] for n in range(6)]
    samples = (3, 4, 5, 6, 7, 1)
    by_reference = step_along(config, made, samples, reference)
    assert torch.equal(by_reference, step_along(config, made, samples, cpu))
    assert not torch.equal(
        by_reference, step_along(DistroConfig(k=8, delay=0), made, samples, reference)
    )
