"""What we rely on in a socket under TLS: who is at the other end, and how it waits and fails."""

import contextlib
import secrets
import select
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.host.tls import ClientTls, ServerTls
from folkmoot.host.tls_socket import TlsSocket, client_context, server_context
from support.certificates import LoopbackAuthority

BODY = 8 << 20


@contextlib.contextmanager
def joined(
    folder: Path, *, certified: str = "127.0.0.1", asked: str = "127.0.0.1", trusted: str = "ca"
) -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """A line's two ends, server first, after their handshake."""
    authorities = {name: LoopbackAuthority(folder, name) for name in ("ca", "other")}
    signed = authorities["ca"].sign("server", certified)
    near, far = socket.socketpair()
    server = TlsSocket.accept(server_context(ServerTls(signed.cert, signed.key)), far)

    def shake() -> None:
        with contextlib.suppress(OSError):  # a client that refuses us says so, and goes
            server.do_handshake()

    shaking = threading.Thread(target=shake)
    shaking.start()
    context = client_context(ClientTls(authorities[trusted].file))
    with contextlib.closing(near), contextlib.closing(server):
        try:
            client = TlsSocket.connect(context, near, asked)
            shaking.join()
            yield server, client
        finally:
            near.shutdown(socket.SHUT_RDWR)
            shaking.join()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "weights.example.org"])
def test_a_certificate_is_for_the_host_that_was_asked_for(tmp_path: Path, host: str) -> None:
    with joined(tmp_path, certified=host, asked=host) as (server, client):
        client.sendall(b"hello")
        assert server.recv(5) == b"hello"


@pytest.mark.parametrize(
    ("certified", "asked"),
    [
        ("127.0.0.1", "127.0.0.2"),
        ("127.0.0.1", "weights.example.org"),
        ("weights.example.org", "127.0.0.1"),
        ("weights.example.org", "example.org"),
        ("example.org", "weights.example.org"),
    ],
)
def test_one_for_another_host_is_refused(tmp_path: Path, certified: str, asked: str) -> None:
    with (
        pytest.raises(ssl.SSLCertVerificationError, match=f"is not for {asked}"),
        joined(tmp_path, certified=certified, asked=asked),
    ):
        pytest.fail("it was let in")


def test_one_that_another_authority_signed_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(OSError, match="certificate verify failed"),
        joined(tmp_path, trusted="other"),
    ):
        pytest.fail("it was let in")


def test_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    authority = LoopbackAuthority(tmp_path, "ca")
    one, other = authority.sign("one"), authority.sign("other")
    with pytest.raises(
        ValueError, match=r"one\.pem and .*other\.key are no certificate with its key"
    ):
        server_context(ServerTls(one.cert, other.key))
    with pytest.raises(ValueError, match=r"one\.key holds no certificates to trust"):
        client_context(ClientTls(one.key))


def test_who_waits_too_long_gives_up(tmp_path: Path) -> None:
    with joined(tmp_path) as (_, client):
        client.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.recv(1)


def test_who_waits_is_woken_when_the_line_is_cut(tmp_path: Path) -> None:
    with joined(tmp_path) as (server, client):
        began, found = threading.Event(), []

        def wait() -> None:
            began.set()
            try:
                found.append(server.recv(1))
            except OSError as error:
                found.append(error)

        waiting = threading.Thread(target=wait)
        waiting.start()
        began.wait()
        client.shutdown(socket.SHUT_RDWR)
        waiting.join()
        assert isinstance(found[0], ConnectionResetError)


def test_who_is_bid_farewell_reads_an_end(tmp_path: Path) -> None:
    authority = LoopbackAuthority(tmp_path, "ca")
    near, far = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server"))

    def bid_farewell() -> None:
        with (
            context.wrap_socket(far, server_side=True) as line,
            contextlib.suppress(ssl.SSLEOFError),  # who hears it hangs up
        ):
            line.unwrap()

    speaking = threading.Thread(target=bid_farewell)
    speaking.start()
    with near:
        client = TlsSocket.connect(client_context(ClientTls(authority.file)), near, "127.0.0.1")
        assert client.recv(1) == b""
    speaking.join()


@pytest.mark.parametrize("direct", [True, False])
def test_one_that_does_not_wait_says_what_for_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    if not direct:  # as with a pyOpenSSL that calls it something else
        monkeypatch.delattr("OpenSSL._util.ffi")
    body, got = secrets.token_bytes(BODY), bytearray()
    with joined(tmp_path) as (server, client):
        for one in (server, client):
            one.setblocking(False)
        with pytest.raises(ssl.SSLWantReadError):
            server.recv(1)
        room, done, waited = memoryview(bytearray(1 << 18)), 0, 0
        while len(got) < BODY:
            with contextlib.suppress(ssl.SSLWantWriteError):
                while done < BODY:
                    done += client.send(memoryview(body)[done : done + (1 << 18)])
            waited += done < BODY
            select.select([server], [], [], 60)
            with contextlib.suppress(ssl.SSLWantReadError):
                while count := server.recv_into(room[: BODY - len(got)]):
                    got += room[:count]
    assert waited > 1, "the line was full now and then"
    assert got == body
