"""Signed URLs are used over one connection, round after round, and over a new one when it ended."""

import http.server
from collections.abc import Iterator

import numpy as np
import pytest
from blake3 import blake3

from folkmoot.exchange.bucket.connections import KeptConnections
from folkmoot.federated.participant.bucket import WeightsUnavailable
from folkmoot.federated.participant.presigned import PresignedBucket, kept_connections
from support.servers import serving

WEIGHTS = {"w": np.arange(50_000, dtype=np.float32)}


class Handler(http.server.BaseHTTPRequestHandler):
    """Keeps what is put, and connections open as a store does."""

    protocol_version = "HTTP/1.1"
    server: "Store"

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self._answer(200, self.server.body)

    def do_PUT(self) -> None:
        self.server.body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self.server.status, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        # Not said before, as by a server that has waited long enough for the next request.
        self.close_connection = self.server.hangs_up

    def log_message(self, format: str, *args: object) -> None:
        pass


class Store(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections, self.hangs_up, self.status, self.body = 0, False, 200, b""
        self.url = f"http://127.0.0.1:{self.server_port}/1/object?signature=s"


@pytest.fixture
def store() -> Iterator[Store]:
    server = Store()
    with serving(server):
        yield server


def one_round(store: Store, connections: KeptConnections) -> None:
    bucket = PresignedBucket(store.url, store.url, connections=connections)
    digest = bucket.write_update(1, "", WEIGHTS)
    assert digest == blake3(store.body).digest()
    np.testing.assert_array_equal(bucket.read_global(1, digest)["w"], WEIGHTS["w"])


def test_rounds_share_a_connection(store: Store) -> None:
    connections = kept_connections()
    for _ in range(3):
        one_round(store, connections)
    assert store.connections == 1
    connections.close()


def test_a_connection_that_the_server_closed_is_made_anew(store: Store) -> None:
    connections = kept_connections()
    store.hangs_up = True
    for _ in range(3):
        one_round(store, connections)
    assert store.connections == 6


def test_a_connection_serves_no_other_server(store: Store) -> None:
    connections, other = kept_connections(), Store()
    with serving(other):
        for _ in range(2):
            one_round(store, connections)
            one_round(other, connections)
        assert (store.connections, other.connections) == (1, 1)
        connections.close()


def test_after_a_refusal_the_connection_is_not_used_again(store: Store) -> None:
    connections = kept_connections()
    store.status = 403
    with pytest.raises(WeightsUnavailable, match="PUT was answered 403"):
        PresignedBucket("", store.url, connections=connections).write_update(1, "", WEIGHTS)
    store.status = 200
    one_round(store, connections)
    assert store.connections == 2
    connections.close()
