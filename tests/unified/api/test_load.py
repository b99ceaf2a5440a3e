"""A job from a file or a module, and what is said of a bad one."""

from pathlib import Path

import pytest

from folkmoot.core.config import ConfigError
from folkmoot.unified.api import BadJob, load_job
from folkmoot.unified.entry import EntryError

JOB = """name = "pipeline"

[roles.source]
entry = "text:Source"
writes = ["lines"]

[roles.trainer]
entry = "train.py"
args = ["--steps", "100"]
reads = ["lines"]

[channels.lines]
"""


def test_a_toml_file(working_folder: Path) -> None:
    Path("job.toml").write_text(JOB)
    job = load_job("job.toml")
    assert list(job.roles) == ["source", "trainer"]
    assert job.roles["trainer"].args == ("--steps", "100")
    assert load_job(working_folder / "job.toml") == job


def test_typos_are_told_with_file_line_and_the_nearest(working_folder: Path) -> None:
    """P18: unknown keys were accepted silently."""
    text = JOB.replace("writes", "wirtes").replace('"train.py"', '"train.py"\ntotl = 3')
    Path("job.toml").write_text(text + "capacty = 5\n")
    with pytest.raises(ConfigError) as caught:
        load_job("job.toml")
    told = str(caught.value)
    assert told.startswith("job.toml has 3 problems:")
    assert "line 5: roles.source.wirtes: unknown key (did you mean 'writes'?)" in told
    assert "line 9: roles.trainer.totl: unknown key (did you mean 'total'?)" in told
    assert "line 14: channels.lines.capacty: unknown key (did you mean 'capacity'?)" in told


def test_what_cannot_be_is_told_with_its_line(working_folder: Path) -> None:
    Path("job.toml").write_text(JOB.replace('reads = ["lines"]', 'reads = ["line"]'))
    with pytest.raises(ConfigError, match=r"channel 'line', which is not there \(did you mean 'li"):
        load_job("job.toml")


def test_a_name_in_a_module(working_folder: Path) -> None:
    Path("myjobs.py").write_text(
        "from folkmoot.unified.api import JobBuilder\n"
        "builder = JobBuilder('a').workload('x', 'm:f')\n"
        "spec = builder.build()\n"
        "def made(): return JobBuilder('b').workload('x', 'm:f').total(2).end()\n"
        "def broken(): return JobBuilder('c')\n"
        "number = 5\n"
    )
    assert load_job("myjobs:builder") == load_job("myjobs:spec")
    assert load_job("myjobs:made").roles["x"].size == 2
    with pytest.raises(BadJob, match="the job c has 1 problem"):
        load_job("myjobs:broken")
    with pytest.raises(ValueError, match="gives int: expected a JobSpec or a builder"):
        load_job("myjobs:number")
    with pytest.raises(EntryError, match="myjobs has no 'jobb'"):
        load_job("myjobs:jobb")


def test_a_file_that_is_not_there(working_folder: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"job\.toml"):
        load_job("job.toml")
    with pytest.raises(ValueError, match="'ppo' is no job: give a file"):
        load_job("ppo")
