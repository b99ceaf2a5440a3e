"""Real stores for tests, in processes of their own, one of each kind for a session."""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.host.processes import Processes
from support.commands import FOLKMOOT
from support.etcd import Etcd

STORE_SERVE = [*FOLKMOOT, "store", "serve"]


class TcpServer:
    """A torch TCPStore that tests may kill, stop and start again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.processes = Processes(folder)
        self.url = self.start()

    def start(self, port: int = 0) -> str:
        command = [*STORE_SERVE, f"--port={port}"]
        return self.processes.start_ready("tcp", command)

    def restart(self) -> None:
        """At the same place, with nothing in it."""
        assert self.start(int(self.url.rpartition(":")[2])) == self.url

    def signal(self, number: int) -> None:
        process = self.processes["tcp"]
        process.send_signal(number)
        if number == signal.SIGSTOP:  # it may run on for a moment
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

    def kill(self) -> None:
        self.processes.kill("tcp")

    def stop(self) -> None:
        self.processes.stop()


@pytest.fixture(scope="session")
def tcp_store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that all tests of a session share: use a prefix."""
    server = TcpServer(tmp_path_factory.mktemp("tcp_store"))
    yield server.url
    server.stop()


@pytest.fixture(scope="session")
def mistreated_tcp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TcpServer]:
    server = TcpServer(tmp_path_factory.mktemp("own_tcp_store"))
    yield server
    server.stop()


@pytest.fixture
def own_tcp_store(mistreated_tcp_server: TcpServer) -> Iterator[TcpServer]:
    """A running server that the test has for itself, to be mistreated; it may hold old keys."""
    if mistreated_tcp_server.processes["tcp"].poll() is not None:
        mistreated_tcp_server.restart()
    yield mistreated_tcp_server
    mistreated_tcp_server.signal(signal.SIGCONT)


@pytest.fixture(scope="session")
def etcd_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An etcd of one member that all tests of a session share: use a prefix."""
    etcd = Etcd(tmp_path_factory.mktemp("etcd"))
    yield etcd.url
    etcd.stop()


@pytest.fixture
def three_members(tmp_path: Path) -> Iterator[Etcd]:
    """An etcd to be mistreated."""
    etcd = Etcd(tmp_path / "etcd", members=3)
    yield etcd
    etcd.stop()


@pytest.fixture(params=["memory", "tcp", "etcd"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The url of each kind of store."""
    if request.param == "memory":
        return f"memory://{uuid.uuid4()}"
    return str(request.getfixturevalue({"tcp": "tcp_store_url", "etcd": "etcd_url"}[request.param]))


@pytest.fixture
def store_prefix() -> str:
    """A part of the shared store that is this test's own."""
    return f"test-{uuid.uuid4().hex[:12]}"
