"""`folkmoot tls make`: certificates that servers and clients of TLS take for good."""

import socket
import ssl
import stat
import threading
from pathlib import Path

from click.testing import Result

from support.commands import folkmoot


def make(folder: Path, *arguments: str) -> Result:
    return folkmoot("tls", "make", *arguments, "--out", folder)


def test_a_server_and_a_client_know_each_other_by_what_was_made(tmp_path: Path) -> None:
    made = make(tmp_path, "localhost", "127.0.0.1", "--client", "anna")
    assert made.exit_code == 0, made.stderr
    assert "keep" in made.stdout
    for key in ("ca.key", "server.key", "anna.key"):
        assert stat.S_IMODE((tmp_path / key).stat().st_mode) == 0o600
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    ours.load_verify_locations(tmp_path / "ca.pem")
    ours.verify_mode = ssl.CERT_REQUIRED
    theirs = ssl.create_default_context(cafile=tmp_path / "ca.pem")
    theirs.load_cert_chain(tmp_path / "anna.pem", tmp_path / "anna.key")
    near, far = socket.socketpair()
    heard: list[bytes] = []

    def serve() -> None:
        with ours.wrap_socket(far, server_side=True) as line:
            heard.append(line.recv(5))
            line.sendall(b"there")

    server = threading.Thread(target=serve)
    server.start()
    with theirs.wrap_socket(near, server_hostname="127.0.0.1") as line:
        line.sendall(b"hello")
        assert line.recv(5) == b"there"
    server.join(60)
    assert heard == [b"hello"]


def test_more_clients_come_later_and_nothing_is_written_over(tmp_path: Path) -> None:
    assert make(tmp_path, "localhost").exit_code == 0
    authority = (tmp_path / "ca.pem").read_bytes()
    assert make(tmp_path, "--client", "bert").exit_code == 0
    assert (tmp_path / "ca.pem").read_bytes() == authority
    again = make(tmp_path, "localhost")
    assert again.exit_code != 0
    assert "is there already" in again.stderr


def test_for_nobody_nothing_is_made(tmp_path: Path) -> None:
    made = make(tmp_path / "new")
    assert made.exit_code != 0
    assert "say for whom" in made.stderr
    assert not (tmp_path / "new").exists()
