"""Training state over a real socket: all of it, or nothing."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import torch
from torch import nn

from folkmoot.elastic import state_stream as module
from folkmoot.elastic.state_stream import (
    Announcement,
    BadState,
    StateServer,
    fetch_state,
    read_announcement,
)

replace = msgspec.structs.replace


def trained() -> dict[str, Any]:
    model = nn.Linear(5, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.randn(4, 5)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


@pytest.fixture
def server() -> Iterator[StateServer]:
    server = StateServer(trained(), "127.0.0.1")
    yield server
    server.close()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and all(map(same, one, other)) and len(one) == len(other)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"a": [1, 2.5, None, True, "x", b"y", (3, {4: 5})], "empty": torch.empty(0, 3)},
        {"scalar": torch.tensor(7), "bits": torch.tensor([True, False])},
        {"half": torch.randn(3).bfloat16(), "turned": torch.randn(3, 4).t(), "big": 2**62},
        {"nan": torch.tensor([float("nan"), -0.0]).view(torch.int32), "tiny": 1e-320},
    ],
)
def test_a_state_comes_over_bit_for_bit(state: dict[str, Any]) -> None:
    server = StateServer(state, "127.0.0.1")
    assert same(fetch_state(server.announcement), state)
    server.close()


def test_the_state_of_a_training_comes_over_bit_for_bit() -> None:
    test_a_state_comes_over_bit_for_bit(trained())


def test_more_than_one_chunk_and_more_than_one_asker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 1000)
    state = {"weights": torch.randn(12_345)}
    server = StateServer(state, "127.0.0.1")
    assert all(same(fetch_state(server.announcement), state) for _ in range(3))
    server.close()


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(TypeError, match="not <class 'object'>"):
        StateServer({"x": object()}, "127.0.0.1")


def test_who_does_not_know_the_token_gets_nothing(server: StateServer) -> None:
    with pytest.raises(ConnectionError):
        fetch_state(replace(server.announcement, token="00" * 32))


def test_a_state_that_changed_is_not_taken() -> None:
    weights = torch.zeros(100)
    server = StateServer({"weights": weights}, "127.0.0.1")
    weights += 1
    with pytest.raises(BadState, match="hash"):
        fetch_state(server.announcement)
    server.close()


def test_another_size_than_announced_is_not_taken(server: StateServer) -> None:
    with pytest.raises(BadState, match="size"):
        fetch_state(replace(server.announcement, size=server.announcement.size + 1))
    with pytest.raises(BadState, match="a header of"):
        fetch_state(replace(server.announcement, size=10))


def test_a_server_that_closed_is_gone(server: StateServer) -> None:
    server.close()
    with pytest.raises(OSError):
        fetch_state(server.announcement)


def answer(content: bytes) -> Announcement:
    """Somebody who says just this to whoever asks."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening, listening.accept()[0] as asker:
            asker.recv(32)
            asker.sendall(content)

    threading.Thread(target=serve, daemon=True).start()
    return Announcement("127.0.0.1", listening.getsockname()[1], "00" * 32, len(content), "")


def packed(header: object) -> bytes:
    content = msgspec.msgpack.encode(header)
    return len(content).to_bytes(8, "little") + content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ((2**60).to_bytes(8, "little"), "a header of"),
        (packed({"nothing": 1}), "cannot be read"),
        (packed({"tree": ["tensor", 0], "tensors": [["float7", [3]]]}), "no tensor of float7"),
        (packed({"tree": ["tensor", 0], "tensors": [["int8", [-3]]]}), r"shape \(-3,\)"),
        (packed({"tree": 1, "tensors": []}), "hash"),
    ],
)
def test_a_liar_is_not_believed(content: bytes, message: str) -> None:
    with pytest.raises(BadState, match=message):
        fetch_state(answer(content))


@pytest.mark.parametrize("tree", [1, ["tensor", 9], ["dict", 3], ["list", None], ["soup", 1]])
def test_a_tree_that_makes_no_sense_is_refused(tree: object) -> None:
    with pytest.raises(BadState):
        module._unflatten(tree, [])


def test_an_announcement_of_a_stranger_is_refused() -> None:
    with pytest.raises(BadState, match="cannot be read"):
        read_announcement(b"rubbish")
