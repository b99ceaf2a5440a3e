"""Simulated clients of a run in one process, for the tests of exchange methods.

Every client draws its own data; payloads arrive at each in another order and are sorted by sender;
each applies them with another number of threads. Clients can be added and removed between rounds.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import torch
from torch import nn

from folkmoot.core.method_config import MethodConfig
from folkmoot.learning.checkpoints.state_hash import state_hash
from folkmoot.learning.methods import Method, build
from folkmoot.learning.methods.protocol import Closure

LR = 3e-3


def small_model(seed: int = 1) -> nn.Module:
    """Matrices that cut evenly and oddly, vectors, a stack of matrices: every kind of chunk."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(24, 64), nn.GELU(), nn.Linear(64, 29), nn.Linear(29, 24))
    model.register_parameter("stack", nn.Parameter(torch.randn(2, 24, 6) * 0.1))
    return model


def closure(model: nn.Module, draw: torch.Generator) -> Closure:
    def run(_: int) -> float:
        x = torch.randn(8, 24, generator=draw)
        y = model(x) + (x @ model.stack[0]) @ model.stack[1].T
        loss = (y - torch.tanh(x.flip(1))).square().mean()
        loss.backward()
        return loss.item()

    return run


def noise(method: Any, seed: int) -> Closure:
    """No training: gradients that the seed gives."""

    def run(number: int) -> float:
        g = torch.Generator().manual_seed(seed * 100 + number)
        for p in method.flat.parameters:
            p.grad += torch.randn(p.shape, generator=g)
        return 0.0

    return run


class Client:
    def __init__(self, name: int, config: MethodConfig) -> None:
        self.name = name
        self.model = small_model()
        self.method: Method = build(self.model, config)
        self.draw = torch.Generator().manual_seed(1000 + name)

    def contribute(self, step: int) -> tuple[bytes, float]:
        made = self.method.contribute(closure(self.model, self.draw), step, LR)
        return made.payload, made.loss

    def root(self) -> bytes:
        return state_hash(self.model).root


class MethodRun:
    """Runs rounds; `sent` keeps each round's payloads by sender until they are applied."""

    def __init__(self, config: MethodConfig, clients: int, seed: int = 0) -> None:
        self.config, self.random = config, random.Random(seed)
        self.clients = [Client(name, config) for name in range(clients)]
        self.named = clients
        self.step = 0
        self.sent: dict[int, dict[int, bytes]] = {}
        self.loss = 0.0

    def round(self, missing: float = 0.0) -> None:
        torch.set_num_threads(1)
        made = {c.name: c.contribute(self.step) for c in self.clients}
        self.loss = sum(loss for _, loss in made.values()) / len(made)
        heard = {n: p for n, (p, _) in made.items() if self.random.random() >= missing}
        self.sent[self.step] = heard
        due = self.step - self.clients[0].method.delay
        for client in self.clients if due >= 0 else []:
            self.apply(client, due)
        self.step += 1

    def apply(self, client: Client, due: int) -> None:
        torch.set_num_threads(self.random.randint(1, 3))
        arrived = list(self.sent[due].items())
        self.random.shuffle(arrived)
        client.method.apply([payload for _, payload in sorted(arrived)], due, LR)

    def leave(self) -> None:
        self.clients.pop(self.random.randrange(len(self.clients)))

    def join(self) -> None:
        """A joiner takes weights and shared state from a peer and starts its own from zero."""
        peer = self.random.choice(self.clients)
        joiner = Client(self.named, self.config)
        self.named += 1
        joiner.model.load_state_dict(peer.model.state_dict())
        state = peer.method.state_dict()
        joiner.method.load_state_dict(
            {k: copy.deepcopy(v) for k, v in state.items() if k.startswith("shared.")}
        )
        self.clients.append(joiner)
