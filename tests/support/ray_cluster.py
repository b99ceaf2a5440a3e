"""One small Ray cluster for all tests that need one, with nobody else's in reach.

A process of its own holds it, for all workers of a test run together, and ends it when the run has
ended. Its start has a time limit of Ray's own, which a busy machine can miss: it is tried again.
"""

import fcntl
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
CPUS = 4
TRIES = 3


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its address."""
    base = tmp_path_factory.getbasetemp()
    of_many = "PYTEST_XDIST_WORKER" in os.environ
    told = (base.parent if of_many else base) / "ray.address"
    with told.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not told.exists():
            told.write_text(_begin(os.getppid() if of_many else os.getpid()))
    return told.read_text()


def _begin(run: int) -> str:
    hear, tell = os.pipe()
    environment = {
        **os.environ,
        "RAY_ADDRESS": "local",
        # Else workers give way to everything else on the machine (15), and what is tested starves
        # beside the other tests: no sign of life for half a minute.
        "RAY_worker_niceness": "0",
        "PYTHONPATH": f"{TESTS.parent / 'src'}:{TESTS}",
    }
    subprocess.Popen(
        [sys.executable, __file__, str(run), str(tell)],
        env=environment,
        pass_fds=(tell,),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(tell)
    with os.fdopen(hear) as pipe:
        address = pipe.read()
    assert address, "Ray did not start"
    return address


def hold(run: int, tell: int) -> None:
    """Until the process `run` has ended."""
    # The paths of Ray's sockets must be short.
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as folder:
        # Else it notes the newest cluster where those of others are, if that folder exists.
        os.environ["RAY_TMPDIR"] = folder
        (Path(folder) / "ray").mkdir()
        from ray.cluster_utils import Cluster

        options = {"num_cpus": CPUS, "include_dashboard": False, "temp_dir": folder}
        for left in reversed(range(TRIES)):
            try:
                cluster = Cluster(initialize_head=True, head_node_args=options)
                break
            except Exception:
                if not left:
                    raise
        os.write(tell, cluster.address.encode())
        os.close(tell)
        select.select([os.pidfd_open(run)], [], [])
        cluster.shutdown()


if __name__ == "__main__":
    hold(int(sys.argv[1]), int(sys.argv[2]))
