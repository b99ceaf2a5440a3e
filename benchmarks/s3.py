"""A SeaweedFS of this machine that speaks S3 over TLS, for benchmarks/federated.py."""

import json
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ACCESS, SECRET = "folkmoot", "a-secret-of-the-benchmark"
PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
    "s3.port.iceberg",
    "s3.port.lance",
)
PATIENCE = 120.0


@contextmanager
def serving(home: Path, cert: Path, key: Path, ca: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a bucket, and what its clients need in their environment."""
    folder = home / "seaweedfs"
    folder.mkdir()
    identity = {
        "name": "bench",
        "credentials": [{"accessKey": ACCESS, "secretKey": SECRET}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    command = [
        str(Path(sys.executable).with_name("weed")), "server", f"-dir={folder}",
        "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-s3", f"-s3.config={folder / 's3.json'}",
        f"-s3.cert.file={cert}", f"-s3.key.file={key}",
        "-volume.max=50", "-master.volumeSizeLimitMB=1024", "-master.telemetry=false",
        *(f"-{name}={port}" for name, port in ports.items()),
    ]  # fmt: skip
    with (home / "seaweedfs.txt").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        endpoint = f"https://localhost:{ports['s3.port']}"
        filer = f"http://127.0.0.1:{ports['filer.port']}"
        wait_for(f"{filer}/", None, process)
        wait_for(f"{endpoint}/status", ssl.create_default_context(cafile=ca), process)
        make = urllib.request.Request(f"{filer}/buckets/bench/", method="POST")
        urllib.request.urlopen(make, timeout=PATIENCE).close()
        yield (
            "s3://bench/models",
            {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": ACCESS,
                "AWS_SECRET_ACCESS_KEY": SECRET,
                "SSL_CERT_FILE": str(ca),
            },
        )
    finally:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait_for(url: str, tls: ssl.SSLContext | None, process: subprocess.Popen[bytes]) -> None:
    """Until it answers, whatever it says."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(url, timeout=5, context=tls).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"SeaweedFS did not start: {error}") from error
            time.sleep(0.1)
