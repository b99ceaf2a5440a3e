"""Updates in fewer bytes: what they lose is bounded, given back later, and nothing else changes."""

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from folkmoot.federated.compression.codec import (
    BLOCK,
    Compression,
    decode_span,
    decoded,
    encode_step,
    encoded_layout,
)
from folkmoot.federated.compression.feedback import ErrorFeedback
from folkmoot.federated.compression.source import CompressedUpdate
from folkmoot.federated.local import train_federation
from folkmoot.federated.model_file.layout import layout_of
from folkmoot.federated.model_file.memory import MemoryModel
from folkmoot.federated.participant.participant import Participant
from support.federation import federation_config, floats, refusal, running_federation

METHODS = [
    Compression(method="bf16"),
    Compression(method="int8"),
    Compression(method="top_k", keep=0.1),
]
IDS = ["bf16", "int8", "top_k"]
steps = arrays(
    np.float32,
    st.integers(1, 2 * BLOCK + 7),
    elements=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False),
    fill=st.just(np.float32(0.5)),
)


@given(steps)
def test_what_is_lost_is_as_much_as_is_said(step: np.ndarray) -> None:
    halves = decoded("x", step.shape, encode_step("x", step, METHODS[0]), METHODS[0])
    assert (np.abs(halves - step.astype(np.float64)) <= np.abs(step) * 2.0**-8).all()
    numbers = decoded("x", step.shape, encode_step("x", step, METHODS[1]), METHODS[1])
    for start in range(0, step.size, BLOCK):
        part = slice(start, start + BLOCK)
        most = float(np.abs(step[part]).max()) / 254 * (1 + 1e-5) + 1e-36  # smaller scales are none
        assert (np.abs(numbers[part] - step[part].astype(np.float64)) <= most).all()
    largest = decoded("x", step.shape, encode_step("x", step, METHODS[2]), METHODS[2])
    count = METHODS[2].count(layout_of({"x": step})["x"])
    kept = largest != 0
    assert kept.sum() <= count
    assert (largest[kept] == step[kept]).all()
    if kept.any() and not kept.all():
        assert np.abs(step[~kept]).max() <= np.abs(step[kept]).min()


@pytest.mark.parametrize("how", METHODS, ids=IDS)
@given(step=steps, data=st.data())
def test_a_span_is_read_as_the_whole_is(how: Compression, step: np.ndarray, data: Any) -> None:
    encoded = encode_step("x", step, how)
    whole = decoded("x", step.shape, encoded, how)
    start = data.draw(st.integers(0, step.size - 1))
    size = data.draw(st.integers(1, step.size - start))

    def read(name: str, first: int, count: int) -> np.ndarray:
        return encoded[name].reshape(-1)[first : first + count]

    found = decode_span("x", start, size, how, read, encoded.get("x#index"))
    np.testing.assert_array_equal(found, whole[start : start + size])
    assert layout_of(encoded) == encoded_layout(layout_of({"x": step}), how)


@pytest.mark.parametrize("how", METHODS, ids=IDS)
def test_what_is_lost_is_said_later(how: Compression) -> None:
    """The same small step again and again: in the end all of it has arrived."""
    own = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)
    reference = {"w": np.zeros((30, 40), np.float32), "n": np.array([3])}
    feedback, arrived = ErrorFeedback(), np.zeros((30, 40))
    for _ in range(50):
        sent = feedback.compressed({"w": own, "n": np.array([5])}, reference, how)
        base = MemoryModel(reference)
        update = CompressedUpdate(MemoryModel(sent), base, how)
        found = {name: np.concatenate([v.copy() for n, _, v in update.blocks(64) if n == name])
                 for name in base.layout}  # fmt: skip
        arrived += found["w"].reshape(30, 40)
        assert list(found["n"]) == [5]
    np.testing.assert_allclose(arrived / 50, own, atol=np.abs(own).max() * 0.3)
    np.testing.assert_allclose((arrived / 50).mean(), own.mean(), atol=0.02)


class Pulls(Participant):
    """Goes half of the way to its own target."""

    def __init__(self, number: int) -> None:
        self.target = np.random.default_rng(number).standard_normal(5000).astype(np.float32)

    def init_weights(self) -> dict[str, np.ndarray]:
        return {"w": np.zeros(5000, np.float32), "count": np.zeros(2, np.int64)}

    def train_round(self, weights: dict, epochs: int, epoch_base: int) -> tuple:
        return {"w": (weights["w"] + self.target) / 2, "count": weights["count"] + 1}, 1, {}


ERRORS = [(METHODS[0], 0.02), (METHODS[1], 0.02), (Compression(method="top_k", keep=0.5), 0.3)]


@pytest.mark.parametrize(("how", "error"), ERRORS, ids=IDS)
async def test_a_compressed_federation_ends_where_a_plain_one_does(
    tmp_path: Path, how: Compression, error: float
) -> None:
    rules = {"rounds": 12, "min_participants": 3}
    config = federation_config(tmp_path, rules, compression=how)
    parts = [Pulls(number) for number in range(3)]
    found = await train_federation(config, parts, tmp_path)
    mean = np.mean([part.target for part in parts], axis=0)
    assert np.linalg.norm(found["w"] - mean) < error * np.linalg.norm(mean)
    assert list(found["count"]) == [11, 11]


async def test_a_step_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    how = Compression(method="top_k", keep=0.5)
    good = {"weights#index": np.array([0, 2]), "weights#value": floats([5, 7])}
    bad = {
        "rising": good | {"weights#index": np.array([2, 0])},
        "within": good | {"weights#index": np.array([0, 4])},
        "nan": good | {"weights#value": floats([5, np.nan])},
        "asked for": {"weights": floats([1, 2, 3, 4])},
    }
    for number, (said, body) in enumerate(bad.items()):
        folder = tmp_path / str(number)
        config = federation_config(folder, {"rounds": 2}, compression=how)
        async with running_federation(folder, config) as w:
            (a,) = await w.join("a")
            await a.deliver([1.0, 2.0, 3.0, 4.0])
            await w.coordinator.until(lambda s: s.round == 1)
            code, reason = await refusal(a.deliver(body, 1))
            assert (code, said in reason) == (grpc.StatusCode.INVALID_ARGUMENT, True), reason
    config = federation_config(tmp_path / "good", {"rounds": 2}, compression=how)
    async with running_federation(tmp_path / "good", config) as w:
        (a,) = await w.join("a")
        await a.deliver([1.0, 2.0, 3.0, 4.0])
        await w.coordinator.until(lambda s: s.round == 1)
        await a.deliver(good, 1)
        assert list(await w.global_of(2)) == [6.0, 2.0, 10.0, 4.0]
