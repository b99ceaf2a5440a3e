"""FedAvg over every node, no evaluation; logs the start of each round."""

import json
import os

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from bench.round_log import log_round_start

app = ServerApp()


class LoggedFedAvg(FedAvg):
    round_log = ""

    def configure_train(self, server_round, arrays, config, grid):
        log_round_start(server_round, self.round_log)
        return super().configure_train(server_round, arrays, config, grid)


@app.main()
def main(grid: Grid, context: Context) -> None:
    # The simulation has no run config of its own; the environment serves both.
    config = {**json.loads(os.environ.get("BENCH_APP", "{}")), **context.run_config}
    clients, rounds = int(config["clients"]), int(config["rounds"])
    strategy = LoggedFedAvg(
        fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients
    )
    strategy.round_log = str(config["round_log"])
    zeros = np.zeros(int(config["params"]), np.float32)
    strategy.start(grid=grid, initial_arrays=ArrayRecord([zeros]), num_rounds=rounds)
    log_round_start(rounds + 1, strategy.round_log)
