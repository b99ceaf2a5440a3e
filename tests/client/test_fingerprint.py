"""A run knows its data: who has other data under the same name does not join."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from folkmoot.client.events import Doing
from folkmoot.client.places import ALL
from folkmoot.core.config import all_broken
from folkmoot.core.data_config import RemoteTokens, TextFiles
from folkmoot.host.event_log import Record
from folkmoot.runs.control import run_state, update_run
from folkmoot.runs.create import create_run
from folkmoot.runs.fingerprint import WrongData, fingerprinted
from folkmoot.runs.join import join_run
from folkmoot.runs.serve import serve_run
from support.commands import folkmoot
from support.small_run import make_run


def nothing_but_looking(event: Record) -> None:
    """A client that goes on with data that it should refuse ends here, not after minutes."""
    assert not isinstance(event, Doing) or "tries out a step" not in event.what


async def test_other_data_under_the_same_name_is_refused_at_joining(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "corpus.txt").write_text("something else under the same name; " * 100)
    async with serve_run(run, tmp_path / "server") as server:
        assert server.state.run.model.fingerprint.startswith("data:")
        mapped = {str(tmp_path / "corpus.txt"): str(theirs / "corpus.txt")}
        with pytest.raises(
            WrongData, match=r"not what run 'moot' trains on: other data \(.*theirs"
        ):
            await join_run(
                server.address,
                "moot",
                tmp_path / "ana",
                trust=(ALL,),
                places=mapped,
                tell=nothing_but_looking,
            )
        assert not len(server.state.pending)


async def test_data_that_changed_under_a_run_is_told_and_updated(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    async with serve_run(run, tmp_path / "server") as server:
        assert not server.changes
    async with serve_run(run, tmp_path / "server") as server:
        assert not server.changes  # the same file, the same data
    (tmp_path / "corpus.txt").write_text("it was mended; " * 100)
    async with serve_run(run, tmp_path / "server") as server:
        assert [change.key for change in server.changes] == ["model.fingerprint"]
        await update_run(server.address, run, server.owner_key)
        assert server.state.run == fingerprinted(run)
    (tmp_path / "corpus.txt").unlink()
    async with serve_run(run, tmp_path / "server") as server:
        assert not server.changes  # what is not here says nothing


def test_what_was_known_of_other_data_says_nothing_of_what_cannot_be_read(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    known = fingerprinted(run)
    (tmp_path / "corpus.txt").unlink()
    assert fingerprinted(run, before=known) == known
    other = replace(run, model=replace(run.model, data=TextFiles((str(tmp_path / "other.txt"),))))
    assert fingerprinted(other, before=known) == other


async def test_a_run_that_is_put_into_a_store_knows_its_data(
    tmp_path: Path, tcp_store_url: str, store_prefix: str
) -> None:
    run = replace(make_run(tmp_path), run_id=store_prefix)
    created = await create_run(run, tcp_store_url, tmp_path)
    state = await run_state(created.url, run.run_id)
    assert state.run == fingerprinted(run) != run


async def test_data_that_the_server_hands_out_is_known_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "tokens.bin").write_bytes(bytes(range(200)) * 40)
    run = make_run(tmp_path, data=RemoteTokens(("run:tokens.bin",)))
    async with serve_run(run, tmp_path / "server", data=folder) as server:
        assert server.state.run.model.fingerprint.startswith("data:")


def test_a_fingerprint_is_printed_as_the_file_takes_it(tmp_path: Path) -> None:
    corpus, file = tmp_path / "corpus.txt", tmp_path / "run.toml"
    corpus.write_text("text")
    file.write_text(
        'run_id = "moot"\n[config]\ntotal_steps = 1\n[model.data]\ntype = "text"\n'
        f'paths = ["{corpus}"]\n'
    )
    done = folkmoot("data", "fingerprint", file)
    assert done.exit_code == 0, done.output
    value = done.output.partition('"')[2].partition('"')[0]
    run = make_run(tmp_path)
    assert not list(all_broken(replace(run, model=replace(run.model, fingerprint=value))))
    bad = replace(run, model=replace(run.model, fingerprint="data:1"))
    assert [broken.field for broken in all_broken(bad)] == ["model.fingerprint"]
