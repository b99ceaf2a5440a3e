"""The same participant in Flower's simulation: virtual clients in Ray actors, one core each."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["PYTHONPATH"] = sys.path[0]  # Ray's workers import the work by name

import numpy as np
import work
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

CLIENTS, ROUNDS, OUT = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
client_app, server_app = ClientApp(), ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    weights = message.content["arrays"].to_numpy_ndarrays()
    data = work.shard(int(context.node_config["partition-id"]))
    metrics = MetricRecord({"num-examples": len(data[1])})
    arrays = ArrayRecord(work.train(weights, data))
    return Message(content=RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@server_app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
    result = strategy.start(grid, ArrayRecord(work.initial()), num_rounds=ROUNDS)
    np.savez(OUT, *result.arrays.to_numpy_ndarrays())


if __name__ == "__main__":
    run_simulation(
        server_app=server_app,
        client_app=client_app,
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )
