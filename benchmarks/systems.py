"""How each system is started for benchmarks/federated.py: one context manager a system.

A system logs the start of each round in `job.round_log`, once more after the last, and is killed by
the harness afterwards. Flower lives in its own virtual environment, made here the first time.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import s3

HERE = Path(__file__).parent.resolve()
VENV = Path("out/flower-venv").resolve()
REQUIREMENT = "flwr[simulation]==1.41.0"
#: Folkmoot before its coordinator carried weights itself: only S3 went across machines then.
BEFORE = "d196a92"
CELL = "FOLKMOOT_BENCH_CELL"
SERVER = "FOLKMOOT_BENCH_SERVER"
#: What stands beside the system that is measured, and shares the machine with it.
BESIDE = "FOLKMOOT_BENCH_BESIDE"


class CellFailed(Exception):
    """This cell gave no figures; the text goes into the table, and the cell may be tried again."""


class CellHopeless(CellFailed):
    """Nor would it another time: too little memory, or too slow to wait for."""


@dataclass
class Job:
    """One cell: what to run, where its files go."""

    label: str
    home: Path
    clients: int
    params: int
    rounds: int  # the first one, which is not measured, included

    @property
    def round_log(self) -> Path:
        return self.home / "rounds.jsonl"

    def clean(self) -> None:
        """Keep the logs, drop the models."""
        for entry in self.home.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)


@dataclass
class Started:
    """The processes of a cell that must not end before the last round."""

    job: Job
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def run(self, *command: object, server: bool = False, **environment: str) -> None:
        env = os.environ | {
            CELL: self.job.label,
            "BENCH_ROUND_LOG": str(self.job.round_log),
            "OMP_NUM_THREADS": "1",
            **environment,
        }
        if server:
            env[SERVER] = self.job.label
        with (self.job.home / "log.txt").open("ab") as log:
            process = subprocess.Popen(
                [str(word) for word in command],
                env=env,
                stdout=log,
                stderr=log,
                cwd=self.job.home,
                start_new_session=True,
            )
        self.processes.append(process)

    def check(self) -> None:
        for process in self.processes:
            if process.poll() not in (None, 0):
                log = self.job.home / "log.txt"
                raise CellFailed(f"a process ended with {process.returncode}; see {log}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def python_with(venv: Path, requirement: str, *pinned: str) -> Path:
    """The Python of a virtual environment of a peer's own, made if it is not there."""
    python = venv / "bin" / "python"
    if not (venv / ".done").exists():
        print(f"==> installing {requirement} into {venv.name} (once)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, requirement, *pinned], check=True)
        (venv / ".done").touch()
    return python


def flower_python() -> Path:
    return python_with(VENV, REQUIREMENT)


QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
#: Ray's sockets have a short path limit and its memory monitor would kill workers before we do.
RAY = {"RAY_memory_monitor_refresh_ms": "0", "RAY_USAGE_STATS_ENABLED": "0"}


def run_folkmoot(
    job: Job,
    bucket: str,
    *tls: Path,
    scripts: Path = HERE / "ours",
    source: Path = HERE.parent / "src",
    **environment: str,
) -> Started:
    """A coordinator with its journal and signatures; one process a participant."""
    port, started = free_port(), Started(job)
    env = {"PYTHONPATH": str(source), **environment}
    shape = (port, job.clients, job.params, job.rounds)
    started.run(sys.executable, scripts / "server.py", *shape, bucket, *tls, server=True, **env)
    for _ in range(job.clients):
        started.run(
            sys.executable, scripts / "participant.py", f"localhost:{port}", *tls[2:], **env
        )
    return started


@contextmanager
def folkmoot(job: Job) -> Iterator[Started]:
    """Weights in a folder that all share: one machine."""
    yield run_folkmoot(job, "bucket")


@contextmanager
def folkmoot_tls(job: Job) -> Iterator[Started]:
    """Weights over TLS and TCP, carried by the coordinator: no folder is shared."""
    yield run_folkmoot(job, "coordinator", *certificates(job))


@contextmanager
def folkmoot_s3(job: Job) -> Iterator[Started]:
    """Weights in an S3 server of this machine, over TLS."""
    with s3.serving(job.home, *certificates(job)) as (url, environment):
        yield run_folkmoot(job, url, *certificates(job), **environment)


@contextmanager
def folkmoot_s3_before(job: Job) -> Iterator[Started]:
    """The same, as it was at `BEFORE`."""
    with s3.serving(job.home, *certificates(job)) as (url, environment):
        old = {"scripts": HERE / "before", "source": source_before()}
        yield run_folkmoot(job, url, *certificates(job), **old, **environment)


def source_before() -> Path:
    folder = Path(f"out/{BEFORE}").resolve()
    if not folder.exists():
        folder.mkdir(parents=True)
        archive = subprocess.run(
            ["git", "archive", BEFORE, "src"], cwd=HERE.parent, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    return folder / "src"


def certificates(job: Job) -> tuple[Path, Path, Path]:
    """Certificate and key of the server, and the authority to trust."""
    folder = job.home / "tls"
    if not folder.exists():
        make = (sys.executable, "-m", "folkmoot", "tls", "make", "localhost", "127.0.0.1")
        env = os.environ | {"PYTHONPATH": str(HERE.parent / "src")}
        subprocess.run([*make, "--out", folder], check=True, env=env, stdout=subprocess.DEVNULL)
    return folder / "server.pem", folder / "server.key", folder / "ca.pem"


def run_flower_legacy(job: Job, host: str, *tls: Path) -> Started:
    """`start_server` and `start_client`: one process a client, gRPC, whole models in a message."""
    python, address, started = flower_python(), f"{host}:{free_port()}", Started(job)
    server = (HERE / "flower/legacy_server.py", address, job.clients, job.params, job.rounds)
    started.run(python, *server, *tls, server=True, **QUIET)
    for _ in range(job.clients):
        started.run(python, HERE / "flower/legacy_client.py", address, *tls[:1], **QUIET)
    return started


@contextmanager
def flower_legacy(job: Job) -> Iterator[Started]:
    yield run_flower_legacy(job, "127.0.0.1")


@contextmanager
def flower_legacy_tls(job: Job) -> Iterator[Started]:
    cert, key, ca = certificates(job)
    yield run_flower_legacy(job, "localhost", ca, cert, key)


@contextmanager
def flower_ray(job: Job) -> Iterator[Started]:
    """Virtual clients in Ray actors; its `server` is the driver process, which logs the rounds."""
    python, started = flower_python(), Started(job)
    config = {"BENCH_APP": json.dumps(app_config(job))}
    script = HERE / "flower/ray_simulation.py"
    started.run(python, script, job.clients, **QUIET, **RAY, **config)
    yield started


@contextmanager
def flower_deployment(job: Job) -> Iterator[Started]:
    """Flower as its manual deploys it: a SuperLink, one SuperNode a client, `flwr run`."""
    python, port, started = flower_python(), free_port(), Started(job)
    home, app = job.home / "flwr", job.home / "app"
    home.mkdir()
    shutil.copytree(HERE / "flower/app", app)
    address = f"127.0.0.1:{port}"
    connection = f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\naddress = "{address}"\n'
    (home / "config.toml").write_text(connection + "insecure = true\n")
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    env = {**QUIET, "FLWR_HOME": str(home), "PATH": path}
    link = ("flower-superlink", "--insecure", "--disable-runtime-dependency-installation")
    started.run(python.parent / link[0], *link[1:], "--port", port, server=True, **env)
    for _ in range(job.clients):
        node = (python.parent / "flower-supernode", "--insecure", "--superlink", address)
        started.run(*node, "--port", free_port(), **env)
    wait_for(address, started)
    config = " ".join(f"{name}={json.dumps(value)}" for name, value in app_config(job).items())
    started.run(python.parent / "flwr", "run", app, "bench", "--run-config", config, **env)
    yield started


def app_config(job: Job) -> dict[str, int | str]:
    shape = {"clients": job.clients, "params": job.params, "rounds": job.rounds}
    return {**shape, "round_log": str(job.round_log)}


def wait_for(address: str, started: Started) -> None:
    """Until somebody listens there."""
    host, port = address.split(":")
    while True:
        started.check()
        with socket.socket() as probe:
            probe.settimeout(0.2)
            if probe.connect_ex((host, int(port))) == 0:
                return


ALL: dict[str, Callable[[Job], AbstractContextManager[Started]]] = {
    "folkmoot": folkmoot,
    "folkmoot-tls": folkmoot_tls,
    "folkmoot-s3": folkmoot_s3,
    "folkmoot-s3-before": folkmoot_s3_before,
    "flower-legacy": flower_legacy,
    "flower-legacy-tls": flower_legacy_tls,
    "flower-ray": flower_ray,
    "flower-deployment": flower_deployment,
}
