"""The frame decoder: what goes in comes out in any pieces, and no bytes make it fail otherwise."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.unified.rpc.errors import FrameError
from folkmoot.unified.rpc.frames import (
    MAX_HEADER,
    PREFIX,
    SMALL,
    FrameReader,
    Kind,
    RpcFrame,
    encode,
)
from folkmoot.unified.rpc.handshake import LARGE, SEAL, Seal
from folkmoot.unified.rpc.values import dump, load

KEY = b"k" * 32
METHODS = st.text(max_size=20)
PARTS = st.lists(st.binary(max_size=200) | st.sampled_from([b"x" * SMALL, b"y" * 70_001]))

FRAMES = st.tuples(st.sampled_from(Kind), st.integers(0, 2**63), METHODS, PARTS)


def written(*frames: tuple[Kind, int, str, list[bytes]], seal: Seal | None = None) -> bytes:
    stream = b""
    for kind, call, method, parts in frames:
        pieces = encode(kind, call, method, parts)
        stream += b"".join(pieces) + (seal.of(pieces) if seal else b"")
    return stream


def read(stream: bytes, reader: FrameReader, most: int = 1 << 30) -> list[RpcFrame]:
    """All frames of a stream that arrives in pieces of at most so many bytes."""
    frames, rest = [], memoryview(stream)
    while rest:
        space = reader.space()
        count = min(len(space), len(rest), most)
        space[:count], rest = rest[:count], rest[count:]
        frames += reader.received(count)
    return frames


@given(st.lists(FRAMES, max_size=4), st.integers(1, 100_000), st.booleans())
def test_frames_come_out_as_they_went_in(
    frames: list[tuple[Kind, int, str, list[bytes]]], most: int, sealed: bool
) -> None:
    stream = written(*frames, seal=Seal(KEY) if sealed else None)
    most = max(most, len(stream) // 500)
    found = read(stream, FrameReader(Seal(KEY) if sealed else None), most)
    assert [
        (f.header.kind, f.header.call, f.header.method, [bytes(p) for p in f.parts]) for f in found
    ] == frames


@given(st.data())
def test_any_other_bytes_are_a_frame_error_or_wait_for_more(data: st.DataObject) -> None:
    good = written((Kind.Call, 7, "generate", [b"abc", b"d" * 50]), (Kind.Hello, 0, "", [b""]))
    bad = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(bad)))
    for stream in (bytes(bad[:cut]), data.draw(st.binary(max_size=300))):
        try:
            frames = read(stream, FrameReader(max_payload=10_000))
        except FrameError:
            continue
        assert all(isinstance(frame, RpcFrame) for frame in frames)


@given(st.integers(0, 100_000), st.integers(1, 255), st.sampled_from([3, LARGE]))
def test_a_sealed_stream_takes_no_changed_byte(at: int, change: int, size: int) -> None:
    stream = bytearray(written((Kind.Call, 7, "step", [bytes(size)]), seal=Seal(KEY)))
    at %= len(stream)
    stream[at] ^= change
    with contextlib.suppress(FrameError):
        assert read(bytes(stream), FrameReader(Seal(KEY), max_payload=50_000)) == []


def test_a_sealed_frame_counts_once_and_in_its_place() -> None:
    seal = Seal(KEY)
    first, second = (written((Kind.Call, n, "step", []), seal=seal) for n in (1, 2))
    for stream in (first + first, second + first):
        with pytest.raises(FrameError, match="seal is wrong"):
            read(stream, FrameReader(Seal(KEY)))
    assert len(first) - SEAL == len(written((Kind.Call, 1, "step", [])))


@pytest.mark.parametrize(("header", "payload"), [(MAX_HEADER + 1, 0), (2**32 - 1, 0), (5, 2**40)])
def test_a_frame_that_is_too_large_is_refused_before_it_is_read(header: int, payload: int) -> None:
    with pytest.raises(FrameError, match="larger than is taken"):
        read(PREFIX.pack(header, payload), FrameReader())


def test_arrays_lie_beside_the_pickle_and_are_not_copied() -> None:
    array = np.arange(100_000, dtype=np.float32)
    value = {"weights": array, "small": np.arange(3), "name": "actor"}
    parts = dump(value)
    assert len(parts) == 2
    assert np.shares_memory(np.frombuffer(parts[1], np.float32), array)
    (frame,) = read(written((Kind.Call, 1, "m", parts)), FrameReader())  # type: ignore[arg-type]
    back = load(frame.parts)
    assert np.array_equal(back["weights"], array)
    assert back["weights"].flags.aligned
    assert back["weights"].flags.writeable


def test_tensors_travel_as_arrays_do() -> None:
    torch = pytest.importorskip("torch")
    tensors = {
        "f32": torch.randn(64, 64),
        "bf16": torch.randn(100, 100).to(torch.bfloat16),
        "turned": torch.arange(20_000).reshape(100, 200).T,
        "grad": torch.randn(3, requires_grad=True),
        "none": torch.empty(0, 4),
        "bool": torch.rand(5) > 0.5,
        "parameter": torch.nn.Parameter(torch.randn(4)),
    }
    parts = dump(tensors)
    assert len(parts) == 4
    back = load([bytearray(part) for part in parts])
    for name, tensor in tensors.items():
        assert torch.equal(back[name], tensor), name
        assert back[name].dtype is tensor.dtype
        assert back[name].requires_grad == tensor.requires_grad
