"""Flower's legacy gRPC server: FedAvg over every client, no evaluation."""

import os
import sys
from pathlib import Path

import flwr
import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerConfig
from flwr.server.strategy import FedAvg

sys.path.insert(0, str(Path(__file__).parent / "app"))
from bench.round_log import log_round_start


class LoggedFedAvg(FedAvg):
    def configure_fit(self, server_round, parameters, client_manager):
        log_round_start(server_round)
        return super().configure_fit(server_round, parameters, client_manager)


def main() -> None:
    address, clients, params, rounds = sys.argv[1], *map(int, sys.argv[2:5])
    strategy = LoggedFedAvg(
        fraction_evaluate=0.0,
        min_fit_clients=clients,
        min_available_clients=clients,
        initial_parameters=ndarrays_to_parameters([np.zeros(params, np.float32)]),
    )
    flwr.server.start_server(
        server_address=address,
        config=ServerConfig(num_rounds=rounds),
        strategy=strategy,
        # The authority, our certificate and its key, where TLS is asked for.
        certificates=tuple(Path(file).read_bytes() for file in sys.argv[5:8]) or None,
    )
    log_round_start(rounds + 1)
    os._exit(0)


main()
