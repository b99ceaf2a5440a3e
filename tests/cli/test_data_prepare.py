"""`folkmoot data prepare` as a process: killed with SIGKILL, it continues."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.commands import refused, start


def prepare(source: Path, out: Path) -> subprocess.Popen[str]:
    return start("data", "prepare", source, "-o", out, env={**os.environ, "COLUMNS": "200"})


def test_killed_midway_it_continues_and_ends_in_the_same_bytes(tmp_path: Path):
    source = tmp_path / "in"
    source.mkdir()
    for number in range(3):
        (source / f"{number}.py").write_bytes(os.urandom(9 << 20))
    killed = prepare(source, tmp_path / "out.bin")
    assert killed.stderr is not None
    for line in killed.stderr:
        if line.startswith("preparing: ") and not line.startswith("preparing: 0"):
            break
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "out.bin").exists()
    again = prepare(source, tmp_path / "out.bin")
    said, progress = again.communicate()
    assert again.returncode == 0, progress
    assert not progress.startswith("preparing: 0 %")
    assert f"{3 * (9 << 20) + 3:,} tokens (uint16, vocabulary 256) of 3 files" in said
    whole = b"".join((source / f"{n}.py").read_bytes() + b"\0" for n in range(3))
    assert (tmp_path / "out.bin").read_bytes()[::2] == whole


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.txt", "-o", "out.bin"], "missing.txt: cannot read this file"),
        (["-o", "out.bin", "--tokenizer", "bpe:x", __file__], "bpe:x: write the size"),
    ],
)
def test_what_goes_wrong_is_one_line(arguments: list[str], said: str):
    assert said in refused("data", "prepare", *arguments)
