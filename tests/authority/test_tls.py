"""TLS and mutual TLS of the run's server, over real sockets."""

import asyncio
from pathlib import Path

import pytest

from authority.any_run import A, join
from authority.served_run import connected, serving
from folkmoot.authority import Denied, Unreachable
from folkmoot.authority.server.serve import Listening
from folkmoot.host.signing import Identity
from folkmoot.host.tls import ClientTls, ServerTls
from support.certificates import LoopbackAuthority
from support.commands import folkmoot


class Certs:
    """A server's authority, its clients', and one that nobody trusts."""

    def __init__(self, folder: Path) -> None:
        self.servers = LoopbackAuthority(folder, "servers")
        self.clients = LoopbackAuthority(folder, "clients")
        self.others = LoopbackAuthority(folder, "others")
        own = self.servers.sign("server")
        self.plain = ServerTls(*own)
        self.mutual = ServerTls(*own, self.clients.file)


@pytest.fixture
def certs(tmp_path: Path) -> Certs:
    return Certs(tmp_path)


async def joins(server: Listening, tls: ClientTls | None) -> None:
    """Join and see the run, as a client does; what it is told is the error."""
    async with connected(server, A, tls=tls) as authority, asyncio.timeout(120):
        await anext(authority.watch())
        assert await authority.submit(join(A)) is None
        assert server.keeper.state.pending.get(A.public) is not None


async def test_a_client_that_trusts_the_servers_authority_joins(
    tmp_path: Path, certs: Certs
) -> None:
    async with serving(tmp_path, tls=certs.plain) as server:
        await joins(server, ClientTls(certs.servers.file))


async def test_a_client_with_a_certificate_joins_under_mutual_tls(
    tmp_path: Path, certs: Certs
) -> None:
    async with serving(tmp_path, tls=certs.mutual) as server:
        await joins(server, ClientTls(certs.servers.file, *certs.clients.sign("ana")))


async def test_a_plain_client_is_told_that_the_server_uses_tls(
    tmp_path: Path, certs: Certs
) -> None:
    async with serving(tmp_path, tls=certs.plain) as server:
        with pytest.raises(Denied, match="uses TLS if --tls-ca"):
            await joins(server, None)


async def test_a_client_of_a_plain_server_is_told_to_leave_tls_out(
    tmp_path: Path, certs: Certs
) -> None:
    async with serving(tmp_path) as server:
        with pytest.raises(Denied, match="does not use TLS: leave --tls-ca out"):
            await joins(server, ClientTls(certs.servers.file))


async def test_a_server_of_another_authority_is_not_believed(tmp_path: Path, certs: Certs) -> None:
    async with serving(tmp_path, tls=certs.plain) as server:
        with pytest.raises(Denied, match=r"others\.pem vouches for"):
            await joins(server, ClientTls(certs.others.file))


async def test_a_certificate_for_another_host_is_not_believed(tmp_path: Path, certs: Certs) -> None:
    elsewhere = ServerTls(*certs.servers.sign("elsewhere", host="192.0.2.1"))
    async with serving(tmp_path, tls=elsewhere) as server:
        with pytest.raises(Denied, match="certificate is for another host"):
            await joins(server, ClientTls(certs.servers.file))


async def test_a_client_without_a_certificate_is_told_to_bring_one(
    tmp_path: Path, certs: Certs
) -> None:
    async with serving(tmp_path, tls=certs.mutual) as server:
        with pytest.raises(Denied, match="wants a certificate of ours"):
            await joins(server, ClientTls(certs.servers.file))


async def test_a_certificate_of_a_strange_authority_is_refused(
    tmp_path: Path, certs: Certs
) -> None:
    async with serving(tmp_path, tls=certs.mutual) as server:
        with pytest.raises(Denied, match="may not know the CA that signed"):
            await joins(server, ClientTls(certs.servers.file, *certs.others.sign("eve")))
        assert len(server.keeper.state.pending) == 0


async def test_a_submitted_message_says_what_is_wrong_too(tmp_path: Path, certs: Certs) -> None:
    async with serving(tmp_path, tls=certs.plain) as server, connected(server, A) as authority:
        with pytest.raises(Unreachable, match="--tls-ca"):
            await authority.submit(join(A))


async def test_a_key_that_is_none_is_an_error_at_the_start(tmp_path: Path, certs: Certs) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("not a key")
    with pytest.raises(OSError, match=r"bad\.pem are not a certificate and its key"):
        async with serving(tmp_path, tls=ServerTls(certs.plain.cert, bad)):
            pass
    async with serving(tmp_path, tls=certs.plain):  # the journal was let go
        pass


@pytest.mark.parametrize("trusted", [True, False])
async def test_status_asks_over_mutual_tls(tmp_path: Path, certs: Certs, trusted: bool) -> None:
    own = (certs.clients if trusted else certs.others).sign("ana")
    Identity.load(tmp_path / "k")
    async with serving(tmp_path, tls=certs.mutual) as server:
        words = ["status", f"127.0.0.1:{server.port}", "--run-id=moot"]
        words += [
            f"--tls-ca={certs.servers.file}",
            f"--tls-cert={own.cert}",
            f"--tls-key={own.key}",
        ]
        result = await asyncio.to_thread(folkmoot, *words)
        assert result.exit_code == (0 if trusted else 1)
        assert ("moot: WaitingForMembers" if trusted else "the CA that signed") in result.output


def test_half_of_the_tls_options_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    words = ["status", "127.0.0.1:1", "--run-id=moot", f"--key={tmp_path / 'k'}", "--tls-cert=c"]
    result = folkmoot(*words)
    assert result.exit_code == 1
    assert "our certificate and its key go together" in result.output
