"""`folkmoot elastic run` as a process of its own, on a real store."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from folkmoot.authority.store.kv.open import open_store
from folkmoot.core.iteration import keys
from support.commands import FOLKMOOT, ran, refused
from support.stores import TcpServer

RUN = [*FOLKMOOT, "elastic", "run"]
QUICK = ["--heartbeat-interval=300", "--heartbeat-timeout=60000"]
# Rank 1 dies in iteration 5, the first time; with it, the others cannot be waiting for a timeout.
# It comes back once they went on without it: on a busy machine it could be there before them.
ELASTIC = """
import os, pathlib, signal, time
from folkmoot.elastic import GlobalIteration
went_on = pathlib.Path(__file__).with_name("went_on")
first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
while not first and not went_on.exists():
    time.sleep(0.01)
with GlobalIteration() as it:
    for iteration in it:
        print(iteration, it.members)
        if it.members == (0, 2):
            went_on.touch()
        if iteration == 5 and it.rank == 1 and first:
            os.kill(os.getpid(), signal.SIGKILL)
        if it.record.members[-1].rank == 2 and max(m.incarnation for m in it.record.members) == 2:
            break
        time.sleep(0.01)
"""
# What a script that knows nothing of us is told, by rank and attempt.
PLAIN = """
import json, os, pathlib, sys, time
said = {name: value for name, value in os.environ.items()}
folder, attempt = pathlib.Path(sys.argv[1]), said["TORCHELASTIC_RESTART_COUNT"]
(folder / f"{said['RANK']}-{attempt}.part").write_text(json.dumps(said))
(folder / f"{said['RANK']}-{attempt}.part").rename(folder / f"{said['RANK']}-{attempt}.json")
if attempt == "0":
    while len(list(folder.glob("*-0.json"))) < int(said["WORLD_SIZE"]):
        time.sleep(0.01)
    if said["RANK"] == "1":
        sys.exit(3)
    time.sleep(600)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.py"


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return ran("elastic", "run", *arguments)


def test_a_rank_that_dies_starts_again_while_the_others_go_on(
    script: Path, tcp_store_url: str
) -> None:
    script.write_text(ELASTIC)
    done = run("-n", "3", f"--store={tcp_store_url}", *QUICK, script)
    assert done.returncode == 0, done.stderr
    assert "rank 1 was ended by SIGKILL; started again (1 of 3)" in done.stderr
    printed = done.stdout.splitlines()
    assert "[0] 5 (0, 1, 2)" in printed
    assert "[0] 6 (0, 2)" in printed
    assert "(0, 1, 2)" in printed[-1]


def test_it_brings_a_store_of_its_own(script: Path) -> None:
    script.write_text(
        "from folkmoot.elastic import GlobalIteration\n"
        "with GlobalIteration(iterations=3) as it:\n    print(list(it))\n"
    )
    done = run("-n", "2", script)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] [0, 1, 2]", "[1] [0, 1, 2]"]


def test_a_script_for_torchrun_is_started_again_as_a_whole(
    script: Path, tmp_path: Path, tcp_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")
    script.write_text(PLAIN)
    done = run("--ranks=2", f"--store={tcp_store_url}", "--job", tmp_path.name, script, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "rank 1 ended with exit code 3; all ranks start again (1 of 3)" in done.stderr
    said = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert said.keys() == {"0-0", "1-0", "0-1", "1-1"}
    one = said["1-1"]
    told = {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    assert told.items() <= one.items()
    assert (one["MASTER_ADDR"], one["TORCHELASTIC_RUN_ID"]) == ("127.0.0.1", tmp_path.name)
    assert one["MASTER_PORT"] == said["0-1"]["MASTER_PORT"]
    assert one["MASTER_PORT"] != said["0-0"]["MASTER_PORT"]
    assert one["OMP_NUM_THREADS"] == "1"


def test_the_launchers_of_two_nodes_agree(
    script: Path, tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    script.write_text(PLAIN)
    common = [*RUN, "--nodes=2", f"--store={tcp_store_url}", f"--job={store_prefix}"]
    nodes = [
        subprocess.Popen([*common, f"--node-rank={node}", str(script), str(tmp_path)])
        for node in range(2)
    ]
    try:
        assert [node.wait(120) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            node.kill()
    said = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("*.json")}
    assert said.keys() == {"0-0", "1-0", "0-1", "1-1"}
    assert said["0-1"]["MASTER_PORT"] == said["1-1"]["MASTER_PORT"]
    assert said["1-1"]["LOCAL_RANK"] == "0"


def test_a_rank_that_keeps_dying_is_given_up_and_its_code_is_ours(
    script: Path, tcp_store_url: str
) -> None:
    script.write_text("import sys\nsys.exit(7)")
    done = run("--max-restarts=1", f"--store={tcp_store_url}", script)
    assert done.returncode == 7
    assert "the job is given up after 1 restarts" in done.stderr


@pytest.fixture
def interruptible(script: Path, tcp_store_url: str) -> Iterator[subprocess.Popen[str]]:
    """A job that says when it is at work, and on Ctrl-C tells so."""
    script.write_text(
        "from folkmoot.elastic import GlobalIteration\n"
        "import time\n"
        "try:\n"
        "    with GlobalIteration() as it:\n"
        "        for n in it:\n"
        "            if n == 3: print('at work')\n"
        "            time.sleep(0.01)\n"
        "except KeyboardInterrupt:\n"
        "    print('saved')\n"
    )
    command = [*RUN, "-n", "2", f"--store={tcp_store_url}", str(script)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_is_handed_on(interruptible: subprocess.Popen[str], number: signal.Signals) -> None:
    assert interruptible.stdout is not None
    # Both whole lines: a signal within a print would keep back the end of its line.
    at_work = {"[0] at work\n", "[1] at work\n"}
    while at_work:
        at_work.discard(interruptible.stdout.readline())
    interruptible.send_signal(number)
    printed = interruptible.stdout.read()
    assert interruptible.wait(120) == 130
    assert "[0] saved" in printed
    assert "[1] saved" in printed


def test_a_job_goes_on_when_nobody_reads_what_it_prints(script: Path, tcp_store_url: str) -> None:
    """As in `folkmoot elastic run … 2>&1 | head -1`. A pipe that nobody empties would fill."""
    script.write_text("import sys\nfor n in range(10_000): print('x' * 99)\nsys.exit(7)")
    command = [*RUN, f"--store={tcp_store_url}", "--max-restarts=1", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"[0] " + b"x" * 99 + b"\n"
        process.stdout.close()
        try:
            assert process.wait(60) == 7
        finally:
            process.kill()


def test_what_the_options_say_is_told_to_the_ranks(script: Path, tcp_store_url: str) -> None:
    script.write_text("import os\nprint(os.environ['FOLKMOOT_RULES'])")
    options = {"min_ranks": 2, "heartbeat_interval": 70, "heartbeat_timeout": 700}
    options |= {"join_timeout": 5, "straggler_timeout": 9, "takeover": "refuse"}
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    done = run("-n", "2", f"--store={tcp_store_url}", *words, script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0].partition(" ")[2]) == options


def test_a_store_that_is_not_there_is_told_before_it_is_waited_for(script: Path) -> None:
    script.touch()
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{nobody.getsockname()[1]}"
        command = [*RUN, f"--store={url}", str(script)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            told = process.stderr.readline()
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
    assert f"no store answers at {url} (Connection refused): start one there with" in told
    assert told.endswith("tries again for 30 s\n")


def test_a_job_whose_store_dies_ends(
    script: Path, own_tcp_store: TcpServer, store_prefix: str
) -> None:
    script.write_text(
        "from folkmoot.elastic import GlobalIteration\n"
        "import time\n"
        "with GlobalIteration(patience=1.0) as it:\n    for n in it: time.sleep(0.01)\n"
    )
    command = [*RUN, f"--store={own_tcp_store.url}", f"--job={store_prefix}", str(script)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    store = open_store(own_tcp_store.url, store_prefix)
    try:
        assert store.wait(keys.ready(3), 120)
        own_tcp_store.kill()
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "folkmoot: rank 0 ended with exit code 1, and the job ends: the store at" in said


def test_a_launcher_that_was_killed_is_replaced_with_its_ranks(
    script: Path, tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    script.write_text(
        "from folkmoot.elastic import GlobalIteration\n"
        "import os, pathlib, sys, time\n"
        "with GlobalIteration() as it:\n"
        "    for n in it:\n"
        "        pathlib.Path(sys.argv[1], str(it.incarnation)).write_text(str(os.getpid()))\n"
        "        time.sleep(0.01)\n"
    )
    command = [*RUN, f"--store={tcp_store_url}", f"--job={store_prefix}", str(script)]
    launchers = []
    try:
        for start in ("1", "2"):
            launchers.append(subprocess.Popen([*command, str(tmp_path)]))
            await_that((tmp_path / start).exists)
            if start == "1":
                launchers[0].kill()
        orphan = int((tmp_path / "1").read_text())
        await_that(lambda: not Path(f"/proc/{orphan}").exists())
    finally:
        launchers[-1].terminate()
        for launcher in launchers:
            launcher.wait(120)


def await_that(so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.py"], "there is no script nowhere.py"),
        (["--nodes=2", __file__], "several nodes need a common store"),
        (["--nodes=2", "--store=memory://x", __file__], "give each the same --job"),
        (["--store=memory://x", "--node-rank=1", __file__], "--node-rank 1 is not one of 0 to 0"),
        (["--store=memory://x", "--min-ranks=2", __file__], "min_ranks is 2, and there are 1"),
        (["--store=ftp://x", __file__], "names no store"),
    ],
)
def test_what_cannot_be_started_is_said(arguments: list[str], message: str) -> None:
    assert message in refused("elastic", "run", *arguments)
