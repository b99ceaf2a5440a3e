"""Four machines, each a network namespace: a server, three clients, and only the README's lines."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from folkmoot.cli.init import TEMPLATE

pytestmark = pytest.mark.faults

PATIENCE = 280.0
NAMES = ("switch", "server", "one", "two", "three")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Machines:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def space(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def inside(self, name: str, *words: str) -> None:
        ip("netns", "exec", self.space(name), *words)

    def connect(self, number: int, name: str) -> None:
        """A line to the switch, 50 ms long and with 1 % loss where the kernel can make it so."""
        far = f"p{number}"
        ip("link", "add", far, "netns", self.space("switch"), "type", "veth",
           "peer", "name", "eth0", "netns", self.space(name))  # fmt: skip
        self.inside("switch", "ip", "link", "set", far, "master", "br0", "up")
        self.inside(name, "ip", "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            self.inside(name, "ip", "link", "set", link, "up")
        bad = ["tc", "qdisc", "add", "dev", "eth0", "root", "netem", "delay", "50ms", "loss", "1%"]
        subprocess.run(["ip", "netns", "exec", self.space(name), *bad], capture_output=True)


@contextmanager
def machines() -> Iterator[Machines]:
    made = Machines(f"fm{os.getpid()}-")
    with ExitStack() as stack:
        for name in NAMES:
            ip("netns", "add", made.space(name))
            stack.callback(ip, "netns", "delete", made.space(name))
        made.inside("switch", "ip", "link", "add", "br0", "type", "bridge")
        made.inside("switch", "ip", "link", "set", "br0", "up")
        for number, name in enumerate(NAMES[1:], 1):
            made.connect(number, name)
        yield made


class Terminal:
    """One machine's terminal: a folder, a line typed into it, and what it printed."""

    def __init__(self, where: Machines, name: str, folder: Path, corpus: str) -> None:
        self.where, self.name, self.folder = where, name, folder
        folder.mkdir()
        (folder / "corpus.txt").write_text(corpus)
        self.output = folder / "screen.txt"
        self.process: subprocess.Popen[bytes] | None = None

    def type(self, line: str) -> None:
        program, *words = line.split()
        assert program == "folkmoot"
        path = os.pathsep.join(entry for entry in sys.path if entry)
        within = ["ip", "netns", "exec", self.where.space(self.name)]
        with self.output.open("wb") as screen:
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", "folkmoot", *words],
                cwd=self.folder,
                env=os.environ
                | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
                | {"PYTHONUNBUFFERED": "1"},
                stdout=screen,
                stderr=subprocess.STDOUT,
            )

    def shows(self, words: str) -> str:
        """The first line with these words; waits for it."""
        until = time.monotonic() + PATIENCE
        while True:
            screen = self.output.read_text()
            found = [line for line in screen.splitlines() if words in line]
            if found:
                return found[0]
            assert self.process is not None
            over = self.process.poll() is not None and screen == self.output.read_text()
            over = over or time.monotonic() > until
            assert not over, f"{self.name} never said {words}:\n{screen}"
            time.sleep(0.2)

    def end(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)

    def last_hash(self) -> str:
        (log,) = self.folder.glob("out/my-run/client/events.jsonl")
        told = [json.loads(line) for line in log.read_text().splitlines()]
        return str([e["hash"] for e in told if e["type"] == "RoundLearnt"][-1])


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[tuple[Machines, list[Terminal]]]:
    if os.geteuid() or not shutil.which("ip"):
        pytest.skip("needs root and `ip`")
    if subprocess.run(["ip", "netns", "list"], capture_output=True).returncode:
        pytest.skip("needs network namespaces")
    corpus = (Path(sysconfig.get_path("stdlib")) / "argparse.py").read_text()
    with machines() as where:
        made = [Terminal(where, name, tmp_path / name, corpus) for name in NAMES[1:]]
        try:
            yield where, made
        finally:
            for terminal in made:
                terminal.end()


def smaller(folder: Path, steps: int) -> None:
    text = TEMPLATE.replace("total_steps = 500", f"total_steps = {steps}", 1)
    text = text.replace("min_clients = 2", "min_clients = 2\ninit_min_clients = 3")
    text = text.replace("layers = 4", "layers = 1").replace("width = 256", "width = 64")
    text = text.replace("max_seq_len = 256", "max_seq_len = 64")
    text = text.replace("max_round_train_time = 60", "max_round_train_time = 20")
    (folder / "run.toml").write_text(text)


def test_the_lines_of_the_readme_make_a_run_of_four_machines(
    terminals: tuple[Machines, list[Terminal]],
) -> None:
    _, (server, *clients) = terminals
    smaller(server.folder, 8)
    server.type("folkmoot serve run.toml --listen 0.0.0.0:7400")
    line = server.shows("folkmoot join").partition("join:")[2].strip()
    assert line == "folkmoot join 10.77.0.1:7400 --run-id my-run"
    for client in clients:
        client.type(line)
    for client in clients:
        client.shows("the run is finished")
    server.shows("Finished")
    assert len({client.last_hash() for client in clients}) == 1
    for screen in (server, *clients):
        assert "cannot reach" not in screen.output.read_text()


def test_who_cannot_reach_whom_is_on_both_screens(
    terminals: tuple[Machines, list[Terminal]],
) -> None:
    where, (server, *clients) = terminals
    smaller(server.folder, 500)
    where.inside("three", "ip", "route", "add", "blackhole", "10.77.0.3/32")
    server.type("folkmoot serve run.toml --listen 0.0.0.0:7400")
    line = server.shows("folkmoot join").partition("join:")[2].strip()
    for client in clients:
        client.type(line)
    named = [client.shows("joins run").split()[1] for client in clients]
    assert f"client {named[1]} at 10.77.0.3:" in clients[2].shows("cannot reach")
    assert f"client {named[2]} at 10.77.0.4:" in clients[1].shows("cannot reach")
    server.shows(f"client {named[2]} cannot reach {named[1]}")
