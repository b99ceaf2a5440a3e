"""Flower's legacy gRPC client: w + 1."""

import sys

from flwr.client import NumPyClient, start_client


class PlusOne(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] + 1], 10, {}


start_client(server_address=sys.argv[1], client=PlusOne().to_client(), insecure=True)
