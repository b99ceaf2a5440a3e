"""As ours/server.py, for the code of `systems.BEFORE`."""

import asyncio
import os
import sys
from pathlib import Path

import numpy as np
from folkmoot.federated.arrays import save_model
from folkmoot.federated.config import Federation, load
from folkmoot.federated.server import serving

from folkmoot.core.federation import messages as m
from folkmoot.federated.coordinator import Coordinator

sys.path.insert(0, str(Path(__file__).parents[1] / "flower" / "app"))
from bench.round_log import log_round_start


class LoggedCoordinator(Coordinator):
    def submit(self, event):
        effects = super().submit(event)
        for effect in effects:
            if isinstance(effect, m.Moved):
                log_round_start(effect.round + (effect.phase == "ROUND"))
        return effects


TOML = """
run_id = "bench"
initial_weights = "zeros.safetensors"

[rounds]
rounds = {rounds}
min_participants = {clients}

[server]
port = {port}

[bucket]
url = "{bucket}"

[security]
tls_certificate = "{cert}"
tls_key = "{key}"
"""


def prepare() -> Federation:
    port, clients, params, rounds = map(int, sys.argv[1:5])
    bucket, cert, key = sys.argv[5:8]
    save_model("zeros.safetensors", {"weights": np.zeros(params, np.float32)})
    shape = {"rounds": rounds, "clients": clients, "port": port}
    config = Path("federation.toml")
    config.write_text(TOML.format(**shape, bucket=bucket, cert=cert, key=key))
    return load(config)


async def main(config: Federation) -> None:
    async with serving(config, LoggedCoordinator) as server:
        await server.finished()
    os._exit(0)


asyncio.run(main(prepare()))
