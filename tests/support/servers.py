"""Real servers for tests: each starts on free loopback ports in its own folder, stops by pid."""

import fcntl
import functools
import http.server
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from folkmoot.exchange.bucket import Bucket
from folkmoot.host.certificates import CertificateFiles
from support.certificates import LoopbackAuthority


@dataclass(frozen=True)
class S3Server:
    """SeaweedFS speaking S3. `new_bucket` gives the URL of a fresh one."""

    endpoint: str
    #: The same over TLS, and who vouches for it.
    over_tls: str = ""
    authority: Path = Path()
    access_key: str = "folkmoot"
    secret_key: str = "a-test-secret"
    made: list[str] = field(default_factory=list)

    @property
    def options(self) -> dict[str, str]:
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
        }

    @property
    def environment(self) -> dict[str, str]:
        """The same for a process that reads its credentials from the environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def new_bucket(self) -> str:
        """An empty prefix: SeaweedFS gives each real bucket volumes of its own, and has few."""
        self.made.append("")
        return f"s3://test/{len(self.made)}"


def free_ports(count: int) -> list[int]:
    """Ports on which nothing listens, nor on the ones after them; ours until this process ends.

    They are below those that the system hands out: any connection may get one of those meanwhile.
    """
    found: list[int] = []
    while len(found) < count:
        port = 20_000 + 2 * secrets.randbelow(6_000)
        if port not in _reserved and _is_free(port) and _is_free(port + 1) and _reserve(port):
            found.append(port)
    return found


_reserved: set[int] = set()


def _reserve(port: int) -> bool:
    """Whether no other process of tests has it, though nothing may listen there for a while: a
    server that was killed comes back to its port. Each locks a byte of a file that all share."""
    try:
        fcntl.lockf(_ports_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    _reserved.add(port)
    return True


@functools.cache
def _ports_file() -> int:
    return os.open(Path(tempfile.gettempdir()) / "folkmoot-test-ports", os.O_RDWR | os.O_CREAT)


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("seaweedfs")
    server, authority = S3Server(""), LoopbackAuthority(folder, "s3")
    identity = {
        "name": "test",
        "credentials": [{"accessKey": server.access_key, "secretKey": server.secret_key}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = free_ports(11)
    with (folder / "log").open("wb") as log:
        command = weed_command(folder, ports, authority.sign("s3"))
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        endpoint, filer = (f"http://127.0.0.1:{port}" for port in (ports[6], ports[4]))
        wait_until_it_answers([f"{filer}/", f"{endpoint}/status"], process, folder / "log")
        make = urllib.request.Request(f"{filer}/buckets/test/", method="POST")
        urllib.request.urlopen(make, timeout=30).close()
        server = S3Server(endpoint, f"https://127.0.0.1:{ports[10]}", authority.file)
        # The first write makes it grow volumes, which takes seconds on a busy machine.
        Bucket(server.new_bucket(), server.options, patience=120).put("first", b"write")
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def s3_over_tls(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    monkeypatch.setenv("SSL_CERT_FILE", str(s3_server.authority))
    return replace(s3_server, endpoint=s3_server.over_tls)


def weed_command(folder: Path, ports: list[int], tls: CertificateFiles) -> list[str]:
    names = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
             "filer.port.grpc", "s3.port", "s3.port.grpc", "s3.port.iceberg",
             "s3.port.lance", "s3.port.https"]  # fmt: skip
    return [
        str(Path(sys.executable).with_name("weed")), "server", f"-dir={folder}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={folder / 's3.json'}",
        f"-s3.cert.file={tls.cert}", f"-s3.key.file={tls.key}",
        "-volume.max=20", "-master.volumeSizeLimitMB=64", "-master.telemetry=false",
        *(f"-{name}={port}" for name, port in zip(names, ports, strict=True)),
    ]  # fmt: skip


def wait_until_it_answers(urls: list[str], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    for url in urls:
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    pytest.fail(f"SeaweedFS did not start:\n{log.read_text()[-2000:]}")
                time.sleep(0.05)


@pytest.fixture(params=["folder", "memory", "s3", "s3 over TLS"])
def any_bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    """An empty bucket of each kind that can be written."""
    if request.param == "folder":
        return Bucket(str(tmp_path / "bucket"))
    if request.param == "memory":
        return Bucket("memory:")
    name = "s3_server" if request.param == "s3" else "s3_over_tls"
    server: S3Server = request.getfixturevalue(name)
    return Bucket(server.new_bucket(), server.options)


class RangeHandler(http.server.BaseHTTPRequestHandler):
    """Serves a folder with byte ranges; can be told to fail the next requests."""

    protocol_version = "HTTP/1.1"
    server: "FileServer"

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        self.server.requests.append(f"{self.command} {self.headers.get('Range', '')}".strip())
        fault = self.server.faults.pop(0) if self.server.faults and body else ""
        path = self.server.folder / self.path.lstrip("/")
        if fault.isdecimal() or not path.is_file():
            self.send_response(int(fault or 404))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        content = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        start, end = (int(asked[1]), int(asked[2]) + 1) if asked else (0, len(content))
        if start >= len(content):
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        piece = content[start:end]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header(
                "Content-Range", f"bytes {start}-{start + len(piece) - 1}/{len(content)}"
            )
        self.send_header("Content-Length", str(len(piece)))
        self.end_headers()
        if body:
            self.wfile.write(piece[: len(piece) // 2] if fault == "cut" else piece)
            self.close_connection = fault == "cut"

    def log_message(self, format: str, *args: object) -> None:
        pass


class FileServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), RangeHandler)
        self.folder = folder
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[str] = []
        self.faults: list[str] = []
        """For each next GET: a status to answer with, or "cut" to stop halfway."""


@contextmanager
def serving(server: http.server.ThreadingHTTPServer) -> Iterator[None]:
    """Answer requests in a thread for the time of the block."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def file_server(tmp_path: Path) -> Iterator[FileServer]:
    folder = tmp_path / "served"
    folder.mkdir()
    server = FileServer(folder)
    with serving(server):
        yield server


@pytest.fixture
def free_port() -> int:
    """A port on which nothing listens."""
    return free_ports(1)[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 8 MB. Needs the right to mount."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
