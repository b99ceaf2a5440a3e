"""Calls between real processes: one is killed, stopped, or forked."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from folkmoot.unified.rpc import call as calls
from folkmoot.unified.rpc.client import RpcClient
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.directory import AddressBook
from folkmoot.unified.rpc.errors import CallTimeout, WorkerDied
from unified.substrate.processes import stop

SECRET = b"only this job knows it"
SERVE = f"""
import os, sys, threading
from folkmoot.unified.rpc.connection import RpcPeer
from folkmoot.unified.rpc.methods import RemoteMethods
from folkmoot.unified.rpc.server import Server
from folkmoot.unified.rpc.io_loop import io_loop
methods = RemoteMethods("rollout-0")
methods.export("echo", lambda x: x)
methods.export("pid", os.getpid)
entered, released = threading.Event(), threading.Event()
def hang_in_the_rollout():
    entered.set()
    released.wait()
methods.export("hang", hang_in_the_rollout)
methods.export("entered", entered.is_set, inline=True)
methods.export("release", released.set, inline=True)
if "fork" in sys.argv:
    io_loop()  # what is pre-imported may have used it; the child begins its own
    if os.fork(): os._exit(os.wait()[1])
server = Server(RpcPeer.me("rollout-0", 1), methods, {SECRET!r})
print(server.listen(sys.argv[1]), flush=True)
sys.stdin.read()
"""


class Rollout:
    def __init__(self, address: str, *options: str) -> None:
        command = [sys.executable, "-c", SERVE, address, *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        book = AddressBook({"rollout-0": self.address})
        self.client = RpcClient("rollout-0", book, RpcPeer.me("trainer-0"), SECRET)


@contextlib.contextmanager
def rollout(address: str, *options: str) -> Iterator[Rollout]:
    made = Rollout(address, *options)
    try:
        yield made
    finally:
        assert made.process.stdin is not None
        assert made.process.stdout is not None
        made.process.send_signal(signal.SIGCONT)
        made.process.stdin.close()
        made.process.stdout.close()
        made.process.wait(60)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_a_killed_worker_fails_its_calls_at_once(kind: str, tmp_path: Path) -> None:
    with rollout(f"unix:{tmp_path}/r" if kind == "unix" else "tcp:127.0.0.1:0") as worker:
        assert worker.client.call("echo", "here").result(60) == "here"
        hanging = [worker.client.call("hang") for _ in range(3)]
        worker.process.kill()
        for call in hanging:
            with pytest.raises(WorkerDied, match=r"rollout-0 .* while hang was called"):
                call.result(60)
        with pytest.raises(WorkerDied, match=r"rollout-0 (cannot be reached|did not answer) at"):
            worker.client.call("echo", 1).result(60)


def test_a_stopped_process_is_told_from_a_slow_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with rollout(f"unix:{tmp_path}/r") as worker:
        slow = worker.client.call("hang")
        while not worker.client.call("entered").result(60):
            pass
        monkeypatch.setattr(calls, "EXPLAIN_SECONDS", 20.0)
        with pytest.raises(CallTimeout, match="hang_in_the_rollout"):
            slow.result(0.1)
        worker.client.call("release").result(60)
        monkeypatch.setattr(calls, "EXPLAIN_SECONDS", 0.3)
        stop(worker.process.pid)
        with pytest.raises(CallTimeout, match="its I/O thread did not answer within"):
            worker.client.request("echo", (1,), {}, timeout=0.1).result()
        worker.process.send_signal(signal.SIGCONT)
        assert worker.client.call("echo", 2).result(60) == 2


def test_a_forked_process_serves_with_a_loop_of_its_own(tmp_path: Path) -> None:
    with rollout(f"unix:{tmp_path}/r", "fork") as worker:
        assert worker.client.call("pid").result(60) not in (worker.process.pid, os.getpid())
