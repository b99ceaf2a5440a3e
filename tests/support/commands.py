"""The command line: as a process, or quicker in this one."""

import sys
from pathlib import Path

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
