"""Dense averaging, DiLoCo and SparseLoCo keep the promises of learning/methods/protocol.py."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from folkmoot.core.method_config import DenseConfig, DiLoCoConfig, MethodConfig, SparseLoCoConfig
from folkmoot.learning.methods import Method, build
from folkmoot.learning.methods.protocol import Closure, RefusedPayload
from learning.method_run import noise

CONFIGS: list[MethodConfig] = [
    DenseConfig(weight_decay=0.1),
    DenseConfig(optimizer="sgd", bits=16),
    DiLoCoConfig(local_steps=3, outer_momentum=0.5),
    DiLoCoConfig(local_steps=2, bits=16, outer_momentum=0.5),
    SparseLoCoConfig(local_steps=3, k=2),
]
NAMES = ["adamw", "sgd-16", "diloco", "diloco-16", "sparseloco"]
every_method = pytest.mark.parametrize("config", CONFIGS, ids=NAMES)


def model(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(30, 70), torch.nn.Tanh(), torch.nn.Linear(70, 5))


def closure(module: torch.nn.Module, client: int, step: int) -> Closure:
    def run(number: int) -> float:
        g = torch.Generator().manual_seed(1000 * step + 10 * client + number)
        x = torch.randn(16, 30, generator=g)
        loss = (module(x) - x[:, :5].sin()).square().mean()
        loss.backward()
        return float(loss.detach())

    return run


class Client:
    def __init__(self, config: MethodConfig, number: int) -> None:
        self.number, self.module = number, model()
        self.method: Method = build(self.module, config)

    def contribute(self, step: int) -> bytes:
        run = closure(self.module, self.number, step)
        return self.method.contribute(run, step, 1e-2).payload

    def bits(self) -> list[bytes]:
        return [p.detach().numpy().tobytes() for p in self.module.parameters()]


def weights_and_state(client: Client) -> tuple[list[bytes], dict[str, bytes]]:
    state = client.method.state_dict()
    return client.bits(), {name: t.numpy().tobytes() for name, t in state.items()}


@every_method
@pytest.mark.parametrize("count", [2, 3, 7])
def test_clients_hold_the_same_bits_after_every_round(config: MethodConfig, count: int) -> None:
    clients = [Client(config, n) for n in range(count)]
    chance = random.Random(count)
    for step in range(12):
        payloads = [c.contribute(step) for c in clients if chance.random() > 0.2]
        for c in clients:
            c.method.apply(payloads, step, 1e-2)
        assert all(c.bits() == clients[0].bits() for c in clients)
        if step == 5:
            clients[-1] = joiner(config, clients[0], count)


@every_method
def test_the_number_of_threads_does_not_change_a_bit(config: MethodConfig) -> None:
    wide = torch.nn.Linear(300, 301)
    start = {name: p.clone() for name, p in wide.state_dict().items()}
    made = build(torch.nn.Linear(300, 301), config)
    payloads = [made.contribute(noise(made, n), 0, 1e-2).payload for n in range(3)]
    results = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        wide.load_state_dict(start)
        method = build(wide, config)
        for step in range(2):
            method.apply(payloads, step, 1e-2)
        results.append(wide.weight.detach().numpy().tobytes())
    assert results[0] == results[1] == results[2]


def joiner(config: MethodConfig, peer: Client, number: int) -> Client:
    client = Client(config, number)
    client.module.load_state_dict(peer.module.state_dict())
    shared = {k: v for k, v in peer.method.state_dict().items() if k.startswith("shared.")}
    client.method.load_state_dict(shared)
    return client


@every_method
@pytest.mark.parametrize("between", [False, True], ids=["after-apply", "before-apply"])
def test_a_resumed_client_continues_with_the_same_bits(config: MethodConfig, between: bool) -> None:
    first = Client(config, 1)
    for step in range(3):
        first.method.apply([first.contribute(step)], step, 1e-2)
    payload = first.contribute(3) if between else b""
    second = Client(config, 1)
    second.module.load_state_dict(first.module.state_dict())
    second.method.load_state_dict({k: v.clone() for k, v in first.method.state_dict().items()})
    if between:
        other = Client(config, 2).contribute(3)
        for c in (first, second):
            c.method.apply([other], 3, 1e-2)
    assert first.contribute(4) == second.contribute(4) != payload
    assert weights_and_state(first) == weights_and_state(second)


@every_method
def test_contribute_leaves_the_weights_as_it_found_them(config: MethodConfig) -> None:
    client = Client(config, 0)
    before = client.bits()
    client.contribute(0)
    assert client.bits() == before


@every_method
def test_a_cancelled_round_leaves_no_trace(config: MethodConfig) -> None:
    client, other = Client(config, 0), Client(config, 0)
    for c in (client, other):
        c.method.apply([c.contribute(0)], 0, 1e-2)
    before = weights_and_state(client)
    run = closure(client.module, 0, 1)
    with pytest.raises(KeyboardInterrupt):
        client.method.contribute(raising_at_the_last(run, client.method), 1, 1e-2)
    assert weights_and_state(client) == before
    assert client.contribute(1) == other.contribute(1)


def raising_at_the_last(run: Closure, method: Method) -> Closure:
    def cancelled(number: int) -> float:
        if number == method.local_steps - 1:
            raise KeyboardInterrupt
        return run(number)

    return cancelled


@every_method
def test_a_round_without_payloads_changes_nothing(config: MethodConfig) -> None:
    client = Client(config, 0)
    before = weights_and_state(client)
    client.method.apply([], 0, 1e-2)
    assert weights_and_state(client) == before


@every_method
def test_a_gradient_that_is_not_finite_is_not_sent(config: MethodConfig) -> None:
    client = Client(config, 0)

    def broken(_: int) -> float:
        for p in client.module.parameters():
            p.grad = torch.full_like(p, float("nan"))
        return 0.0

    with pytest.raises(FloatingPointError, match="not finite"):
        client.method.contribute(broken, 0, 1e-2)


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda p: p[:7],
    "not-this-method": lambda p: b"XX" + p[2:],
    "version": lambda p: p[:2] + b"\x09" + p[3:],
    "setting": lambda p: p[:3] + bytes([p[3] ^ 0xFF]) + p[4:],
    "fingerprint": lambda p: p[:4] + b"12345678" + p[12:],
    "trailing": lambda p: p + b"\0",
}


@every_method
@pytest.mark.parametrize("reason", list(CHANGES))
def test_a_damaged_frame_is_refused_with_its_reason(config: MethodConfig, reason: str) -> None:
    client = Client(config, 0)
    payload = client.contribute(0)
    assert client.method.check(payload) is None
    refusal = client.method.check(CHANGES[reason](payload))
    assert refusal is not None
    assert refusal.reason == reason


@pytest.mark.parametrize("config", CONFIGS[:4], ids=NAMES[:4])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2.0**41])
def test_values_that_could_poison_a_sum_are_refused(config: MethodConfig, bad: float) -> None:
    client = Client(config, 0)
    payload = bytearray(client.contribute(0))
    width = 4 if len(payload) > 12 + 3 * client_size(client) else 2
    whole = torch.tensor([bad]).numpy().astype("<f4").tobytes()
    payload[20 : 20 + width] = whole[4 - width :]
    with pytest.raises(RefusedPayload, match="payload 1 of the round was refused") as caught:
        client.method.apply([client.contribute(0), bytes(payload)], 0, 1e-2)
    assert caught.value.refusal.reason == "value"


def client_size(client: Client) -> int:
    return sum(p.numel() for p in client.module.parameters())


@every_method
@settings(max_examples=40)
@given(data=st.data())
def test_no_bytes_make_check_raise(config: MethodConfig, data: st.DataObject) -> None:
    client = Client(config, 0)
    payload = bytearray(client.contribute(0))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(payload[: data.draw(st.integers(0, len(payload)))])
    if client.method.check(changed) is None:
        client.method.apply([changed], 0, 1e-2)
        assert all(torch.isfinite(p).all() for p in client.module.parameters())
    client.method.check(data.draw(st.binary(max_size=64)))


def test_dense_averaging_is_adamw_on_the_mean_gradient() -> None:
    config = DenseConfig(weight_decay=0.1, clip=0.05)
    clients = [Client(config, n) for n in range(3)]
    plain = model()
    torch_adamw = torch.optim.AdamW(
        plain.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1
    )
    for step in range(10):
        payloads = [c.contribute(step) for c in clients]
        torch_adamw.zero_grad()
        for c in clients:
            closure(plain, c.number, step)(0)
        for p in plain.parameters():
            assert p.grad is not None
            p.grad /= 3
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
        torch_adamw.step()
        clients[0].method.apply(payloads, step, 1e-2)
        for c in clients[1:]:
            c.method.apply(payloads, step, 1e-2)
    for ours, theirs in zip(clients[0].module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_diloco_alone_without_outer_momentum_is_adamw() -> None:
    client = Client(DiLoCoConfig(local_steps=4, outer_lr=1.0, outer_momentum=0.0, clip=0.0), 0)
    plain = model()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    for step in range(3):
        client.method.apply([client.contribute(step)], step, 1e-2)
        for number in range(4):
            optimizer.zero_grad()
            closure(plain, 0, step)(number)
            optimizer.step()
    for ours, theirs in zip(client.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_the_outer_step_is_nesterov() -> None:
    client = Client(DiLoCoConfig(local_steps=1, outer_lr=0.5, outer_momentum=0.8), 0)
    plain = model()
    outer = torch.optim.SGD(plain.parameters(), lr=0.5, momentum=0.8, nesterov=True)
    for step in range(4):
        payload = client.contribute(step)
        moved = torch.frombuffer(bytearray(payload[12:]), dtype=torch.float32)
        pieces = torch.split(moved, [p.numel() for _, p in sorted(plain.named_parameters())])
        for (_, p), piece in zip(sorted(plain.named_parameters()), pieces, strict=True):
            p.grad = piece.view(p.shape)
        outer.step()
        client.method.apply([payload], step, 1e-2)
    for ours, theirs in zip(client.module.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@every_method
def test_every_method_learns(config: MethodConfig) -> None:
    clients = [Client(config, n) for n in range(3)]
    losses = []
    for step in range(40):
        rounds = [
            c.method.contribute(closure(c.module, c.number, step), step, 1e-2) for c in clients
        ]
        losses.append(sum(r.loss for r in rounds) / 3)
        for c in clients:
            c.method.apply([r.payload for r in rounds], step, 1e-2)
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
