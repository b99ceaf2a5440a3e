"""What ours/server.py and before/server.py have in common: the federation's file, and its life.

Imports nothing of Folkmoot: the two serve different versions of it.
"""

import os
import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

sys.path.insert(0, str(Path(__file__).parent / "flower" / "app"))
from bench.round_log import log_round_start as log_round_start

TOML = """
run_id = "bench"
initial_weights = "zeros.safetensors"

[rounds]
rounds = {rounds}
min_participants = {clients}

[server]
port = {port}
{server}

[bucket]
url = "{bucket}"
"""
TLS = """
[security]
tls_certificate = "{}"
tls_key = "{}"
"""


def write_federation(server: str = "") -> Path:
    """The file for what the command line says, with this line more about the server."""
    port, clients, params, rounds = map(int, sys.argv[1:5])
    save_file({"weights": np.zeros(params, np.float32)}, "zeros.safetensors")
    shape = {"rounds": rounds, "clients": clients, "port": port, "server": server}
    text = TOML.format(**shape, bucket=sys.argv[5])
    path = Path("federation.toml")
    path.write_text(text + (TLS.format(*sys.argv[6:8]) if len(sys.argv) > 6 else ""))
    return path


async def serve(serving: AbstractAsyncContextManager[Any]) -> None:
    async with serving as server:
        await server.finished()
    os._exit(0)
