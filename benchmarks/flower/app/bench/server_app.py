"""FedAvg over every node, no evaluation; marks the start of each round."""

import json
import os
import time

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


class Marked(FedAvg):
    marks = ""

    def mark(self, round_: int) -> None:
        line = {"round": round_, "t": time.monotonic(), "pid": os.getpid()}
        with open(self.marks, "a") as file:
            file.write(json.dumps(line) + "\n")

    def configure_train(self, server_round, arrays, config, grid):
        self.mark(server_round)
        return super().configure_train(server_round, arrays, config, grid)


@app.main()
def main(grid: Grid, context: Context) -> None:
    # The simulation has no run config of its own; the environment serves both.
    config = {**json.loads(os.environ.get("BENCH_APP", "{}")), **context.run_config}
    clients, rounds = int(config["clients"]), int(config["rounds"])
    strategy = Marked(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    strategy.marks = str(config["marks"])
    zeros = np.zeros(int(config["params"]), np.float32)
    strategy.start(grid=grid, initial_arrays=ArrayRecord([zeros]), num_rounds=rounds)
    strategy.mark(rounds + 1)
