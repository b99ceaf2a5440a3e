"""One client of the runs that liars attack: a small GPT, trained with the real method (DisTrO)."""

from __future__ import annotations

import time
from pathlib import Path

from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.coordinator.client.screening import ComparedResult, Screening
from folkmoot.core.data_config import DataConfig, TokenFiles
from folkmoot.core.method_config import DistroConfig
from folkmoot.core.model_config import GptConfig
from folkmoot.core.schedule import Schedule
from folkmoot.learning.data import Samples, open_data
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.methods.distro import DistroMethod
from folkmoot.learning.models import build

LENGTH = 64
MODEL = GptConfig(layers=1, heads=2, width=64, context=LENGTH)


class Client:
    """One client; `share` is how many samples of a round it trains."""

    def __init__(self, name: int, data: Samples, bits: int, share: int, rate: Schedule) -> None:
        self.name, self.data, self.share, self.rate = bytes([name]) * 32, data, share, rate
        self.model = build(MODEL, 0, "cpu")
        config = DistroConfig(bits=bits, delay=1, weigh_alignment=True)
        self.method = DistroMethod(self.model, config)
        self.screening, self.made = Screening(), list[bytes]()
        self.threads, self.seconds = 1, 0.0

    def train(self, step: int, first: int, count: int | None = None) -> bytes:
        ids = range(first, first + (self.share if count is None else count))

        def closure(_: int) -> float:
            return loss_and_gradients(self.model, self.data.samples(ids))

        began = time.process_time()
        self.made.append(self.method.contribute(closure, step, self.rate.lr(step)).payload)
        self.seconds += time.process_time() - began
        return self.made[-1]

    def learn(self, payloads: list[bytes], step: int) -> None:
        self.method.apply(payloads, step, self.rate.lr(step))

    def follow(self, other: Client, payloads: list[bytes], step: int) -> None:
        """As `learn`, from another client with the same model, which comes to the same bits."""
        method = self.method
        method._return_lost([f for f in method.in_flight if f.step <= step], payloads)
        method.applied += bool(payloads)
        method.flat.weights.copy_(other.method.flat.weights)

    def join_anew(self, other: Client) -> None:
        """As after a crash: the model from a peer, nothing of its own."""
        state = other.method.state_dict()
        shared = {name: x for name, x in state.items() if name.startswith("shared.")}
        self.model.load_state_dict(other.model.state_dict())
        self.method.load_state_dict(shared)
        self.screening = Screening()


def opened(path: Path) -> Samples:
    return open_data(DataConfig(TokenFiles((str(path),)), LENGTH, wrap=True), 0)


def witness(
    client: Client, step: int, sent: dict[bytes, bytes], clients: list[Client], screen: bool
) -> frozenset[bytes]:
    """Whose results a client that witnesses the round would not have learnt."""
    if not screen:
        return frozenset()
    sketches = {name: _sketch(client.method, payload) for name, payload in sent.items()}
    arrivals = [
        ComparedResult(name, payload[:4096], sketches[name]) for name, payload in sent.items()
    ]
    shares = {c.name: (Span(0, c.share),) for c in clients if c.name in sent}
    return client.screening.judge((0, step), step, arrivals, shares)


_sketches: dict[bytes, bytes] = {}


def _sketch(method: DistroMethod, payload: bytes) -> bytes:
    """Every witness makes its own; they are equal, so here they are made once."""
    if payload not in _sketches:
        if len(_sketches) > 64:
            _sketches.clear()
        _sketches[payload] = method.sketch(payload)
    return _sketches[payload]
