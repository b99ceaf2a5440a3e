"""`folkmoot join` before it is part of anything: what it says, and what it does not make."""

from pathlib import Path

from click.testing import Result

from support.commands import folkmoot


def join(folder: Path, *words: str | Path) -> Result:
    """Ended by a module that is not there, which is looked for once torch is loaded."""
    where = ("127.0.0.1:1", "--run-id", "moot", "--folder", folder)
    return folkmoot("join", *where, *words, "--import", "no_such_module")


def test_a_mistyped_key_is_an_error_not_a_new_key(tmp_path: Path) -> None:
    key = tmp_path / "clinet.key"
    ended = join(tmp_path, "--key", key)
    assert ended.exit_code == 1
    assert f"there is no key {key}" in " ".join(ended.output.split())
    assert list(tmp_path.iterdir()) == []


def test_it_says_who_joins_and_what_takes_long_before_anything_does(tmp_path: Path) -> None:
    ended = join(tmp_path)
    assert "cannot import 'no_such_module'" in ended.output
    first, second, *_ = ended.output.splitlines()
    assert first.endswith("joins run 'moot' at 127.0.0.1:1")
    assert second == "  loads torch"
