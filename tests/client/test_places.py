"""A client protects its owner: what a run may use on its machine, and what it may not."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from authority.stranger import served
from folkmoot.client.places import ANYWHERE, NotTrusted, Places
from folkmoot.core.config import ConfigError
from folkmoot.core.coordinator import Run, decode_run
from folkmoot.core.data_config import (
    MixtureConfig,
    MixturePart,
    ParquetFiles,
    RemoteTokens,
    TextFiles,
    TokenFiles,
)
from folkmoot.core.model_config import HuggingFaceConfig
from folkmoot.runs.join import join_run
from folkmoot.runs.serve import serve_run
from support.commands import RUN_FILE, ran
from support.small_run import compile_kernels, make_run

SERVED = """
[model.data]
type = "text"
paths = ["{secret}"]
"""


def test_a_server_cannot_make_a_client_read_or_write_elsewhere(tmp_path: Path) -> None:
    secret, hidden, work = tmp_path / "secret", tmp_path / "home/.config", tmp_path / "work"
    secret.write_text("private " * 1000)
    work.mkdir()
    run = RUN_FILE.replace('"checkpoints"', f'"{hidden}"') + SERVED.format(secret=secret)
    with served(tmp_path / "there", run) as server:
        ended = ran("join", server.address, "--run-id", "moot", cwd=work)
    assert ended.returncode != 0
    said = " ".join(ended.stderr.split())
    assert f"join with --trust {hidden} --trust {secret}; or name places of yours" in said
    assert not hidden.exists()


def test_a_run_id_does_not_lead_out_of_the_output_folder(tmp_path: Path) -> None:
    work = tmp_path / "deep/er/work"
    work.mkdir(parents=True)
    ended = ran("join", "127.0.0.1:1", "--run-id", "../../../x", cwd=work)
    assert ended.returncode != 0
    assert "must be a name of 1 to 64 letters" in " ".join(ended.stderr.split())
    assert [p.name for p in tmp_path.iterdir()] == ["deep"]
    with pytest.raises(ConfigError, match="run_id: must be a name"):
        decode_run(RUN_FILE.replace('"moot"', '"../moot"'))


async def test_join_run_takes_no_run_id_that_is_a_path(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"run_id '\.\./moot': it must be a name of 1 to 64 letters"
    ):
        await join_run("127.0.0.1:1", "../moot", tmp_path / "client")
    assert not (tmp_path / "client").exists()


@pytest.mark.parametrize(
    "name", ["corpus.txt", "data/corpus.txt", "./out/x/step", "run:tokens.bin"]
)
def test_what_lies_below_the_current_folder_may_be_used(name: str) -> None:
    assert Places().ours(name) == name


FOREIGN = [
    "/etc/passwd",
    "../x",
    "data/../../x",
    ".ssh/id",
    "data/.hidden/x",
    "~/.ssh/../..",
    "s3://bucket/x",
    "hf://owner/name",
    "https://example.org/x",
    "file:///etc/passwd",
    "file:x",
    "memory:x",
    "data\\..\\x",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_everything_else_needs_the_owners_word(name: str) -> None:
    with pytest.raises(NotTrusted):
        Places().ours(name)
    assert Places([name]).ours(name) == name
    assert ANYWHERE.ours(name) == name


def test_trust_in_a_place_is_trust_in_what_lies_below_and_nothing_beside(tmp_path: Path) -> None:
    places = Places(["s3://bucket/run/", "/data", "https://example.org"])
    for name in ("s3://bucket/run", "s3://bucket/run/step-1", "/data/x", "https://example.org/a/b"):
        assert places.ours(name) == name
    for name in (
        "s3://bucket/run2",
        "s3://bucket/run/../x",
        "s3://bucket/run/%2e%2e/x",
        "s3://bucket/run/x?endpoint=http://evil.org",
        "gs://bucket/run",
        "/data/../etc/passwd",
        "/data2",
        "https://example.org.evil.org/x",
        "https://example.org@evil.org/x",
    ):
        with pytest.raises(NotTrusted):
            places.ours(name)


def test_a_place_of_ours_is_used_for_theirs() -> None:
    places = Places(mapped={"s3://theirs/run": "/mine/", "/etc/corpus.txt": "corpus.txt"})
    assert places.ours("s3://theirs/run") == "/mine/"
    assert places.ours("s3://theirs/run/a/b") == "/mine/a/b"
    assert places.ours("/etc/corpus.txt") == "corpus.txt"
    for name in ("s3://theirs/run/../x", "/etc/corpus.txt2", "/etc"):
        with pytest.raises(NotTrusted):
            places.ours(name)


def test_everything_that_a_run_names_is_asked_about_at_once(tmp_path: Path) -> None:
    parts = (
        MixturePart(1.0, TextFiles(("/a",), "/tokenizer.json")),
        MixturePart(1.0, RemoteTokens(("https://b/c",))),
        MixturePart(1.0, TokenFiles(("/tokens.bin",))),
        MixturePart(1.0, ParquetFiles(("/rows.parquet",))),
    )
    run = make_run(tmp_path, data=MixtureConfig(parts), checkpoint="s3://d", start="/e/step-1")
    more = {"held_out": TextFiles(("/g",)), "architecture": HuggingFaceConfig(path="/h")}
    run = replace(run, model=replace(run.model, tokenizer="/f", **more))
    with pytest.raises(NotTrusted) as asked:
        Places().localised(run)
    read = (
        "/a",
        "/tokenizer.json",
        "https://b/c",
        "/tokens.bin",
        "/rows.parquet",
        "/f",
        "/g",
        "/h",
    )
    for name in (*read, "s3://d", "/e"):
        assert f"--trust {name}" in str(asked.value)
    ours = Places(["all"], {"/a": "/mine/a", "/h": "/mine/h"}).localised(run)
    assert ours.model.architecture == HuggingFaceConfig(path="/mine/h")
    assert ours.model.data.parts[0].source.paths == ("/mine/a",)  # type: ignore[union-attr]
    assert ours.model.checkpoint == "s3://d", "others are told of it"


def alone(folder: Path, **changes: Any) -> Run:
    run = make_run(folder, min_clients=1, total_steps=2, rounds_per_epoch=2, **changes)
    compile_kernels(run.model.method)
    return run


@pytest.mark.parametrize("kept", ["/nowhere/kept", "/nowhere/kept/"])
async def test_a_client_trains_and_stores_in_places_of_its_own(tmp_path: Path, kept: str) -> None:
    run = alone(tmp_path, data=TextFiles(("/nowhere/corpus.txt",)), checkpoint=kept)
    ours = {
        "/nowhere/corpus.txt": str(tmp_path / "corpus.txt"),
        "/nowhere/kept": str(tmp_path / "k"),
    }
    async with serve_run(run, tmp_path / "server") as server:
        model = await join_run(server.address, "moot", tmp_path / "client", places=ours)
        assert server.state.checkpoint.location == "/nowhere/kept/step-00000002"
    assert model is not None
    assert (tmp_path / "k/step-00000002/manifest.json").exists()
    assert not (tmp_path.parents[-1] / "nowhere").exists()
