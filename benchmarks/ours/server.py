"""Folkmoot's coordinator as `federate serve` runs it; logs the start of each round."""

import asyncio
import os
import socket
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from folkmoot.core.federation import messages as m
from folkmoot.federated.coordinator.config import Federation, load_federation
from folkmoot.federated.coordinator.coordinator import Coordinator
from folkmoot.federated.coordinator.server import serving

sys.path.insert(0, str(Path(__file__).parents[1] / "flower" / "app"))
from bench.round_log import log_round_start


class LoggedCoordinator(Coordinator):
    def _act(self, step):
        super()._act(step)
        for effect in step.effects:
            if isinstance(effect, m.StateChanged):
                log_round_start(self.state.round + (effect.after == "ROUND"))


TOML = """
run_id = "bench"
initial_weights = "zeros.safetensors"

[rounds]
rounds = {rounds}
min_participants = {clients}

[server]
port = {port}
weights_port = {weights_port}

[bucket]
url = "{bucket}"
"""
TLS = """
[security]
tls_certificate = "{}"
tls_key = "{}"
"""


def free_port() -> int:
    """The port after a free one, which is the default, may be in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def prepare() -> Federation:
    port, clients, params, rounds = map(int, sys.argv[1:5])
    save_file({"weights": np.zeros(params, np.float32)}, "zeros.safetensors")
    config = Path("federation.toml")
    shape = {"rounds": rounds, "clients": clients, "port": port, "weights_port": free_port()}
    text = TOML.format(**shape, bucket=sys.argv[5])
    config.write_text(text + (TLS.format(*sys.argv[6:8]) if len(sys.argv) > 6 else ""))
    return load_federation(config)


async def main(config: Federation) -> None:
    async with serving(config, LoggedCoordinator) as server:
        await server.finished()
    os._exit(0)


asyncio.run(main(prepare()))
