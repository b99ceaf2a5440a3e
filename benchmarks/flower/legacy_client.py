"""Flower's legacy gRPC client: w + 1."""

import sys
from pathlib import Path

from flwr.client import NumPyClient, start_client


class PlusOne(NumPyClient):
    def fit(self, parameters, config):
        return [parameters[0] + 1], 10, {}


authority = Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else None
start_client(
    server_address=sys.argv[1],
    client=PlusOne().to_client(),
    root_certificates=authority,
    insecure=authority is None,
)
