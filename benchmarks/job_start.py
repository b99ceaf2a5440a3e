"""How long a job of two workers takes to start, and to be whole again after `kill -9` of one.

    python benchmarks/job_start.py [--rounds 3] [--no-ray]

Everything is started by its command, as a user would: the clock runs from there to the first step
of both workers, and from the kill to the next step of the killed one's successor. Workers import
torch, unless the row says `plain`: what torch takes by itself is measured, too (`import torch`).
Beside ours: torchrun, which starts the whole group again; Ray Train; and the public implementation
(DLRover's unified API, workers that import nothing). The last two live in an environment of their
own, `.venv-peers`, which `make bench-job` makes; where it could not, their rows are left out. A Ray
cluster is started beforehand for those of an environment; `ray floor` is what Ray itself takes
there, from a driver's start to the first answer of two actors that import nothing.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import results

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers"
WORKERS, PATIENCE = 2, 180.0
SETTLED = 50  # steps, a second: Ray Train gives up if one dies before it has seen all of them begin
START_GOAL, PUBLIC_GOAL = 2.0, 0.5

OURS = os.environ.get("PYTHONPATH", "")

Start = Callable[[Path], list[str]]


def local(folder: Path) -> list[str]:
    return _job(folder, "local")


def local_plain(folder: Path) -> list[str]:
    return _job(folder, "local", "plain_stepper")


def on_ray(folder: Path) -> list[str]:
    return [*_job(folder, "ray"), f"--ray-address={os.environ['BENCH_RAY']}"]


def on_ray_plain(folder: Path) -> list[str]:
    return [*_job(folder, "ray", "plain_stepper"), f"--ray-address={os.environ['BENCH_RAY']}"]


def torchrun(folder: Path) -> list[str]:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={WORKERS}"]
    command += ["--max-restarts=3", "--monitor-interval=0.1", "--standalone"]
    return [*command, str(HERE / "job" / "stepper.py"), str(folder)]


def ray_train(folder: Path) -> list[str]:
    return [_peers_python(), str(HERE / "job" / "ray_train.py"), str(folder)]


def public(folder: Path) -> list[str]:
    return [_peers_python(), str(HERE / "job" / "public_job.py"), str(folder)]


def _peers_python() -> str:
    return str(PEERS / "bin" / "python")


def _job(folder: Path, on: str, module: str = "stepper") -> list[str]:
    role = {"entry": f"{module}:ours", "total": WORKERS, "config": {"folder": str(folder)}}
    toml = [f'name = "{folder.name}"', "[roles.w]"]
    toml += [f"{key} = {json.dumps(value)}" for key, value in role.items() if key != "config"]
    toml += ["resource = { cpu = 0.1 }", f'config = {{ folder = "{folder}" }}']
    (folder / "job.toml").write_text("\n".join(toml))
    command = [sys.executable, "-m", "folkmoot", "job", "run", str(folder / "job.toml")]
    return [*command, "--on", on, "--folder", str(folder / "job")]


def measure(start: Start) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="job") as name:
        folder = Path(name)
        command = start(folder)
        path = f"{HERE / 'job'}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, "PYTHONPATH": path}
        began = time.time()
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet) as running:
            try:
                _wait(lambda: _all_step(folder, running))
                started = max(_steps(folder, rank)[0][0] for rank in range(WORKERS)) - began
                _wait(lambda: _all_step(folder, running, SETTLED))
                back = _kill(folder)
            finally:
                (folder / "finish").touch()
                _end(running)
    return {"start s": started, "back s": back}


def _end(running: "subprocess.Popen[bytes]") -> None:
    """What does not end by itself has been measured all the same."""
    try:
        running.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        print("it did not end, and is killed")
        running.kill()


def _all_step(folder: Path, running: "subprocess.Popen[bytes]", count: int = 1) -> bool:
    if running.poll() is not None:
        raise TimeoutError("it ended before it began")
    return all(len(_steps(folder, rank)) >= count for rank in range(WORKERS))


def _kill(folder: Path) -> float:
    _, victim = _steps(folder, 0)[-1]
    killed = time.time()
    os.kill(victim, signal.SIGKILL)
    return _wait(lambda: [at for at, pid in _steps(folder, 0) if pid != victim])[0] - killed


def _steps(folder: Path, rank: int) -> list[tuple[float, int]]:
    path = folder / f"{rank}.steps"
    lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
    return [(float(at), int(pid)) for at, pid in map(str.split, lines)]


def _wait(condition):  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("it never came")
        time.sleep(0.01)
    return found


@contextmanager
def cluster(python: str) -> Iterator[None]:
    """A Ray cluster of this interpreter's environment; its workers find the modules of `job`."""
    path = [str(HERE / "job"), *([OURS] if python == sys.executable and OURS else [])]
    os.environ["PYTHONPATH"] = ":".join(path)
    command, pipe = [python, str(HERE / "job" / "ray_cluster.py")], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as ray:
        assert ray.stdin is not None
        assert ray.stdout is not None
        os.environ["BENCH_RAY"] = ray.stdout.readline().strip()
        try:
            yield
        finally:
            ray.stdin.close()
            ray.wait()
            os.environ["PYTHONPATH"] = OURS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-ray", action="store_true")
    options = parser.parse_args()
    found = {"local plain": _median(local_plain, options.rounds)}
    found["local"] = _median(local, options.rounds)
    found["torchrun"] = _median(torchrun, options.rounds)
    found["import torch"] = _command([sys.executable, "-c", "import torch"], options.rounds)
    if not options.no_ray:
        with cluster(sys.executable):
            found["ray plain"] = _median(on_ray_plain, options.rounds)
            found["ray"] = _median(on_ray, options.rounds)
            floor = [sys.executable, str(HERE / "job" / "ray_floor.py")]
            found["ray floor"] = _command(floor, options.rounds)
        found |= _peers()
    _judge(found)
    if options.rounds == parser.get_default("rounds") and not options.no_ray:
        results.write("job_start", "python benchmarks/job_start.py", found)


def _peers() -> dict[str, dict[str, float]]:
    """Once each: they take minutes."""
    if not (PEERS / ".job").exists():
        print("Ray Train and DLRover are left out: `make bench-job` installs them, if it can")
        return {}
    with cluster(_peers_python()):
        return {"public": _median(public, 1), "ray train": _median(ray_train, 1)}


def _median(start: Start, rounds: int) -> dict[str, float]:
    try:
        measured = [measure(start) for _ in range(rounds)]
    except (TimeoutError, IndexError) as error:
        print(f"{start.__name__}: {error}")
        return {"start s": float("nan"), "back s": float("nan"), "load": 0.0}
    figures = {
        what: results.significant(statistics.median(one[what] for one in measured))
        for what in measured[0]
    }
    figures["load"] = results.significant(os.getloadavg()[0])
    print(f"{start.__name__:24}", figures, flush=True)
    return figures


def _command(command: list[str], rounds: int) -> dict[str, float]:
    """How long a command takes by itself."""
    times = []
    for _ in range(rounds):
        began = time.time()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        times.append(time.time() - began)
    figures = {"start s": results.significant(statistics.median(times))}
    figures["load"] = results.significant(os.getloadavg()[0])
    print(f"{' '.join(command[1:])[-24:]:24}", figures, flush=True)
    return figures


def _judge(found: dict[str, dict[str, float]]) -> None:
    ours, torch_run = found["local"], found["torchrun"]
    goals = [
        (f"local: started within {START_GOAL} s, with torch", ours["start s"] <= START_GOAL),
        ("local: back before torchrun is", ours["back s"] <= torch_run["back s"]),
    ]
    if "public" in found:  # its workers import nothing
        for what in ("start s", "back s"):
            mine, theirs = found["ray plain"][what], found["public"][what]
            met = mine <= PUBLIC_GOAL * theirs
            goals.append((f"ray: {what} at most {PUBLIC_GOAL} times the public one's", met))
    for goal, met in goals:
        print(f"goal: {goal}: {results.GOALS[met]}")


if __name__ == "__main__":
    main()
