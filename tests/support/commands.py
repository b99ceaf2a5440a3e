"""The command line: as a process, or quicker in this one."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from folkmoot.cli import all_commands

FOLKMOOT = [sys.executable, "-m", "folkmoot"]
#: A run that a server can hold, and nobody trains.
RUN_FILE = """
run_id = "moot"
[config]
total_steps = 4
min_clients = 2
[model]
checkpoint = "checkpoints"
"""


def folkmoot(*words: str | Path) -> Result:
    """What a command says and its exit code; an error that would be a traceback is raised."""
    return CliRunner().invoke(all_commands(), [str(word) for word in words], catch_exceptions=False)


def printed(*words: str | Path) -> str:
    """What a command prints that ends well."""
    done = folkmoot(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*words: str | Path) -> str:
    """Why a command ends with an error."""
    done = folkmoot(*words)
    assert done.exit_code == 1, done.output
    return done.stderr


def start(*words: str | Path, **how: Any) -> "subprocess.Popen[str]":
    """A command as a process; `how` is for Popen."""
    command, pipe = [*FOLKMOOT, *map(str, words)], subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, **how)


def ran(*words: str | Path, **how: Any) -> "subprocess.CompletedProcess[str]":
    """The same, once it ended by itself."""
    command = [*FOLKMOOT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, **{"timeout": 120, **how})


def elastic_run(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """What `folkmoot elastic run` printed, which must end well."""
    command = [*FOLKMOOT, "elastic", "run", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done


def ended(process: "subprocess.Popen[str]", number: signal.Signals) -> str:
    """What a process printed until a signal ended it, in order."""
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "Traceback" not in err
    return out


@contextmanager
def served(
    file: Path, listen: str = "127.0.0.1:0"
) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """`folkmoot serve` as a process, ready: where it listens, and the process to read from."""
    hear, tell = os.pipe()
    words = [file, "--state", file.parent / "server", "--listen", listen, f"--ready-fd={tell}"]
    with start("serve", *words, pass_fds=(tell,)) as process:
        os.close(tell)
        with os.fdopen(hear) as pipe:
            address = pipe.read().strip()
        try:
            yield address, process
        finally:
            process.send_signal(signal.SIGTERM)
