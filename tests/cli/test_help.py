"""`--help` says what the docstrings say, in the lines of the terminal."""

import pytest

from folkmoot.cli.help_text import help_text
from support.commands import folkmoot, refused


def test_what_is_in_brackets_is_no_colour() -> None:
    assert "Needs folkmoot[train]." in " ".join(folkmoot("join", "--help").stdout.split())


def test_lines_are_as_long_as_the_terminal_and_examples_as_they_are() -> None:
    said = "First.\n\n    One line\n    and another.\n\n        $ an example\n          stays\n    "
    assert help_text(said) == "First.\n\nOne line and another.\n\n    $ an example\n      stays"


@pytest.mark.parametrize(
    ("option", "default"),
    [("heartbeat-interval", 2000), ("heartbeat-timeout", 3000), ("takeover", "fence")],
)
def test_the_rules_of_a_job_have_their_defaults_in_the_help(option: str, default: object) -> None:
    said = " ".join(folkmoot("elastic", "run", "--help").stdout.replace("│", " ").split())
    assert f"[default: {default}]" in said.partition(f"--{option}")[2].partition(" --")[0]


def test_a_file_that_is_not_there_is_written_by_init() -> None:
    told = "there is no file nowhere.toml: `folkmoot init nowhere.toml` writes one"
    assert told in refused("up", "nowhere.toml")
