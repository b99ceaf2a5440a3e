"""Child processes start, say that they are ready, and end with the block."""

import os
import sys
from pathlib import Path

import pytest

from folkmoot.core.user_error import UserError
from folkmoot.host.processes import Processes

SLEEP = "import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
READY = "import os, sys; fd = int(sys.argv[1][11:]); os.write(fd, b'here'); os.close(fd); "


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def test_every_process_ends_with_the_block_even_when_it_fails(tmp_path: Path) -> None:
    processes = Processes(tmp_path)

    def fails() -> None:
        with processes:
            processes.start("one", python(SLEEP))
            processes.start("two", python(SLEEP))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert [processes[name].returncode for name in ("one", "two")] == [-15, -15]


def test_a_process_deaf_to_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("folkmoot.host.processes.STOP_TIME", 0.1)
    with Processes(tmp_path) as processes:
        processes.start_ready("deaf", python(DEAF + READY + SLEEP))
    assert processes["deaf"].returncode == -9


def test_a_start_waits_for_what_the_process_says(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        said = processes.start_ready("server", python(READY + SLEEP))
        assert said == "here"
        assert processes["server"].poll() is None


def test_a_process_that_ends_before_it_is_ready_is_an_error_with_its_output(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes, pytest.raises(UserError, match="no such port"):
        processes.start_ready("server", python("raise SystemExit('no such port')"))


def test_the_tail_of_the_output_is_at_hand(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("talker", python("for i in range(100): print(i)"))
        processes["talker"].wait()
        assert processes.output("talker").split() == [str(i) for i in range(85, 100)]


def test_only_those_that_failed_by_themselves_are_said_to_have_failed(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("killed", python(SLEEP))
        processes.kill("killed")
        for name, code in (("fine", "0"), ("broken", "3")):
            processes.start(name, python(f"raise SystemExit({code})"))
            processes[name].wait()
        assert processes.failed() == ["broken"]
        assert processes.failed() == []


def test_an_end_is_waited_for_and_told(tmp_path: Path) -> None:
    told, tell = os.pipe()
    with Processes(tmp_path, on_end=lambda: os.close(tell)) as processes:
        processes.start("short", python(""))
        processes.wait()
        assert processes["short"].returncode == 0
        assert os.read(told, 1) == b""
    os.close(told)


def test_the_environment_is_ours_and_what_is_added(tmp_path: Path) -> None:
    code = "import os; print(os.environ['PATH'], os.environ['THREADS'])"
    with Processes(tmp_path, {"THREADS": "7"}) as processes:
        processes.start("child", python(code))
        processes["child"].wait()
        assert processes.output("child") == f"{os.environ['PATH']} 7"
