"""Flower's Ray simulation of the same app, one CPU for each virtual client."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "app"))
# Ray's workers import the client app by name.
os.environ["PYTHONPATH"] = sys.path[0]

from bench.client_app import app as client_app
from bench.server_app import app as server_app
from flwr.simulation import run_simulation

if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=int(sys.argv[1]),
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
