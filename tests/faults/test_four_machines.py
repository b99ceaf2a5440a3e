"""Four machines, each a network namespace: a server, three clients, and only the README's lines."""

import json
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.machines import NAMES, Machines, Terminal, machines, need_namespaces
from folkmoot.cli.init import TEMPLATE

pytestmark = pytest.mark.faults


def last_hash(terminal: Terminal) -> str:
    (log,) = terminal.folder.glob("out/my-run/client/events.jsonl")
    told = [json.loads(line) for line in log.read_text().splitlines()]
    return str([e["hash"] for e in told if e["type"] == "RoundLearnt"][-1])


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[tuple[Machines, list[Terminal]]]:
    need_namespaces()
    corpus = (Path(sysconfig.get_path("stdlib")) / "argparse.py").read_text()
    with machines() as where:
        made = [Terminal(where, name, tmp_path / name) for name in NAMES]
        for terminal in made:
            (terminal.folder / "corpus.txt").write_text(corpus)
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
    where, (server, *clients) = terminals
    smaller(server.folder, 8)
    server.type("folkmoot serve run.toml --listen 0.0.0.0:7400")
    line = server.shows("folkmoot join").partition("join:")[2].strip()
    assert line == "folkmoot join 10.77.0.1:7400 --run-id my-run"
    for client in clients:
        client.type(line)
    for client in clients:
        client.shows("the run is finished")
    server.shows("Finished")
    assert len({last_hash(client) for client in clients}) == 1
    for screen in (server, *clients):
        assert "cannot reach" not in screen.output.read_text()
    switch = where.switch
    print(f"{switch.passed:,} frames passed, {switch.lost:,} were lost")
    assert switch.lost > switch.passed / 200


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
