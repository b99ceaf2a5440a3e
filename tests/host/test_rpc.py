"""Listening and TLS settings fail with sentences; pauses grow to their most."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from folkmoot.host.clock import backoff
from folkmoot.host.rpc import listen, new_server
from folkmoot.host.tls import ClientTls, ServerTls, client_tls, server_tls

A, B, C = Path("a.pem"), Path("b.pem"), Path("c.pem")


async def test_a_taken_port_is_a_sentence_not_a_second_server() -> None:
    first, second = new_server([]), new_server([])
    port = listen(first, "127.0.0.1:0", None)
    assert port > 0
    with pytest.raises(OSError, match=rf"cannot listen at 127.0.0.1:{port}: the address is taken"):
        listen(second, f"127.0.0.1:{port}", None)
    await first.stop(None)
    await second.stop(None)


async def test_files_that_hold_no_certificate_are_named(tmp_path: Path) -> None:
    for name in ("cert", "key"):
        (tmp_path / name).write_text("nonsense")
    tls = ServerTls(tmp_path / "cert", tmp_path / "key")
    server = new_server([])
    with pytest.raises(OSError, match=r"cert and .*key are not a certificate and its key"):
        listen(server, "127.0.0.1:0", tls)
    await server.stop(None)


def test_tls_is_whole_or_not_there() -> None:
    assert server_tls(None, None) is None
    assert server_tls(A, B, C) == ServerTls(A, B, C)
    assert client_tls(None, None, None) is None
    assert client_tls(A, None, None) == ClientTls(A)
    assert client_tls(A, B, C) == ClientTls(A, B, C)


@pytest.mark.parametrize(
    ("settings", "files", "complaint"),
    [
        (server_tls, (A, None, None), "both a certificate and its key"),
        (server_tls, (None, B, None), "both a certificate and its key"),
        (server_tls, (None, None, C), "we need our own"),
        (client_tls, (A, B, None), "go together"),
        (client_tls, (A, None, C), "go together"),
        (client_tls, (None, B, C), "needs the CA"),
    ],
)
def test_a_part_of_tls_is_refused(settings: Any, files: tuple, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        settings(*files)


def test_pauses_double_up_to_the_most_and_never_all_at_once() -> None:
    delays = list(islice(backoff(0.5, 4.0), 8))
    for delay, most in zip(delays, [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0, 4.0], strict=True):
        assert most / 2 <= delay <= most
    assert len(set(delays[3:])) > 1
