"""Requests over TLS to a server of its own: what comes back, and to whom nothing is said."""

import contextlib
import http.server
import os
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.exchange.bucket.connections import KeptConnections
from support.certificates import LoopbackAuthority

BODY = os.urandom(5 << 20)


class Store(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.tls = tls
        self.connections, self.put = 0, b""

    def get_request(self):
        bare, address = super().get_request()
        self.connections += 1
        return self.tls.wrap_socket(bare, server_side=True, do_handshake_on_connect=False), address

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server_port}/object"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Store

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def do_PUT(self) -> None:
        self.server.put = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # whom the other side does not trust hears it here
            super().handle()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LoopbackAuthority:
    authority = LoopbackAuthority(tmp_path, "ca")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


@contextlib.contextmanager
def serving(authority: LoopbackAuthority, host: str = "127.0.0.1") -> Iterator[Store]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("server", host))
    with Store(tls) as store:
        thread = threading.Thread(target=store.serve_forever)
        thread.start()
        try:
            yield store
        finally:
            store.shutdown()
            thread.join()


def test_objects_go_there_and_back_over_one_connection(authority: LoopbackAuthority) -> None:
    connections = KeptConnections(connect=60, patience=60)
    with serving(authority) as store, contextlib.closing(connections):
        sent = {"Content-Length": str(len(BODY))}
        with connections.request("PUT", store.url, sent, lambda: [BODY[:99], BODY[99:]]) as answer:
            assert answer.read() == b""
        room = bytearray(len(BODY))
        with connections.request("GET", store.url, {}) as answer:
            view, done = memoryview(room), 0
            while done < len(BODY):
                done += answer.readinto(view[done:])
        assert store.connections == 1
    assert store.put == room == BODY


def test_nothing_is_asked_of_a_server_with_a_name_that_is_not_its(
    authority: LoopbackAuthority,
) -> None:
    connections = KeptConnections(connect=60, patience=60)
    with (
        serving(authority, host="127.0.0.2") as store,
        pytest.raises(OSError, match=r"is not for 127\.0\.0\.1"),
        connections.request("PUT", store.url, {"Content-Length": "6"}, lambda: [b"secret"]),
    ):
        pytest.fail("it was asked")
    assert store.put == b""


def test_nor_of_one_that_nobody_vouches_for(authority: LoopbackAuthority, tmp_path: Path) -> None:
    connections = KeptConnections(connect=60, patience=60)
    with (
        serving(LoopbackAuthority(tmp_path, "other")) as store,
        pytest.raises(OSError, match="certificate verify failed"),
        connections.request("GET", store.url, {}),
    ):
        pytest.fail("it was asked")
