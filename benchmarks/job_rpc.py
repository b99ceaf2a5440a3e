"""Calls between two processes of a job, beside Ray's actor calls where Ray is installed.

    python benchmarks/job_rpc.py [--calls 3000] [--no-ray]

The same four things of each: a call that waits for its answer, calls that do not wait for each
other, arrays of 1 MB to a worker (16 on their way), and arrays of 1 MB there and back, one by one.
The load of the machine is printed beside them: both suffer from it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles
from typing import Any

import numpy as np

import results
from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.directory import AddressBook
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.server import Server

SECRET = b"of this benchmark only"
MB = 1024 * 1024
ARRAYS, IN_FLIGHT = 200, 16
GOAL_MS, GOAL_RATE = 0.83, 1_913  # the best of Ray in the reference

Send = Callable[[str, Any], Any]
Wait = Callable[[Any], Any]


def serve(address: str) -> None:
    methods = RemoteMethods("echo-0")
    methods.export("echo", lambda value: value)
    methods.export("size", len)
    server = Server(RpcPeer.me("echo-0", 1), methods, SECRET)
    print(server.listen(address), flush=True)
    sys.stdin.read()


@contextmanager
def ours(address: str) -> Iterator[Send]:
    command = [sys.executable, __file__, "--serve", address]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        book = AddressBook({"echo-0": process.stdout.readline().strip()})
        client = RpcClient("echo-0", book, RpcPeer.me("bench"), SECRET)
        yield lambda method, value: client.call(method, value)
        client.close()
        process.stdin.close()


@contextmanager
def rays() -> Iterator[tuple[Send, Wait]]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)

    @ray.remote(num_cpus=0)
    class Echo:
        def echo(self, value: Any) -> Any:
            return value

        def size(self, value: Any) -> int:
            return len(value)

    actor = Echo.remote()
    ray.get(actor.echo.remote(0))
    yield lambda method, value: getattr(actor, method).remote(value), ray.get
    ray.shutdown()


def measure(send: Send, wait: Wait, calls: int) -> dict[str, float]:
    for _ in range(200):
        wait(send("echo", 0))
    array = np.zeros(MB, np.uint8)
    sync = [_timed(lambda: wait(send("echo", 1))) for _ in range(calls)]
    rate = calls / _timed(lambda: [wait(call) for call in [send("echo", 1) for _ in range(calls)]])
    there = _timed(lambda: _stream(send, wait, array))
    back = _timed(lambda: [wait(send("echo", array)) for _ in range(ARRAYS)])
    cuts = quantiles(sync, n=100)
    return {
        "p50 ms": cuts[49] * 1e3,
        "p99 ms": cuts[98] * 1e3,
        "calls/s": rate,
        "MB/s to": ARRAYS * MB / 1e6 / there,
        "MB/s and back": 2 * ARRAYS * MB / 1e6 / back,
        "load": os.getloadavg()[0],
    }


def _stream(send: Send, wait: Wait, array: Any) -> None:
    flying: deque[Any] = deque()
    for _ in range(ARRAYS):
        if len(flying) == IN_FLIGHT:
            wait(flying.popleft())
        flying.append(send("size", array))
    while flying:
        wait(flying.popleft())


def _timed(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _rounded(figure: float) -> float:
    rounded = results.significant(figure)
    return int(rounded) if rounded >= 100 else rounded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3000)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, address in (("unix", f"unix:{folder}/echo"), ("tcp", "tcp:127.0.0.1:0")):
            with ours(address) as send:
                found[name] = measure(send, lambda call: call.result(), options.calls)
    if not options.no_ray:
        with rays() as (send, wait):
            found["ray"] = measure(send, wait, options.calls)
    for name, figures in found.items():
        told = "  ".join(f"{what} {figure:,.3g}" for what, figure in figures.items())
        print(f"{name:5} {told}")
    unix = found["unix"]
    met = unix["p50 ms"] < GOAL_MS and unix["calls/s"] > GOAL_RATE
    print(f"goal: p50 < {GOAL_MS} ms and more than {GOAL_RATE:,} calls/s: {results.GOALS[met]}")
    if options.calls == parser.get_default("calls") and "ray" in found:
        rounded = {
            name: {what: _rounded(figure) for what, figure in figures.items()}
            for name, figures in found.items()
        }
        results.write("job_rpc", "python benchmarks/job_rpc.py", rounded)
    return None


if __name__ == "__main__":
    main()
