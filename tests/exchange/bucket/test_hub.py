"""The real Hugging Face client against a server that speaks the Hub's endpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from folkmoot.core.model_config import GptConfig
from folkmoot.exchange.bucket import AccessDenied, Bucket, BucketError, Missing, NotPossible, hub
from folkmoot.learning.checkpoints.fetch import fetch, latest
from folkmoot.learning.checkpoints.save import save
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.models import build
from support.hub_server import HubServer
from support.servers import serving


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    running = HubServer("hf_right")
    with serving(running):
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store = Bucket(str(tmp_path / "mine"))
    model = build(GptConfig(layers=2, heads=2, width=64, context=32), 3, "cpu")
    save(store, 7, model, tokenizer=byte_tokenizer())
    return latest(store)


def test_a_checkpoint_goes_to_the_hub_in_one_commit_and_comes_back(server, folder, tmp_path: Path):
    commit = hub.push(folder, "people/model", "Step 7", endpoint=server.url)
    assert [oid for oid, _ in server.commits["people/model"]] == [commit]
    assert (folder / "model.safetensors").stat().st_size > 100_000
    into = hub.pull("people/model", tmp_path / "theirs" / folder.name, endpoint=server.url)
    assert fetch(Bucket(str(tmp_path / "theirs")), folder.name) == into
    for file in folder.iterdir():
        assert (into / file.name).read_bytes() == file.read_bytes()


def test_a_push_that_breaks_off_leaves_no_commit(server, folder: Path):
    server.fail_lfs = True
    with pytest.raises(BucketError):
        hub.push(folder, "people/model", "Step 7", endpoint=server.url)
    assert server.commits["people/model"] == []


def test_a_wrong_token_is_denied(server, folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(AccessDenied, match="hf://people/model"):
        hub.push(folder, "people/model", "Step 7", endpoint=server.url)


def test_what_is_not_there_is_missing(server, folder: Path, tmp_path: Path):
    with pytest.raises(Missing, match="no such repository"):
        hub.pull("people/none", tmp_path / "x", endpoint=server.url)
    hub.push(folder, "people/model", "Step 7", endpoint=server.url)
    with pytest.raises(Missing, match="no such revision"):
        hub.pull("people/model", tmp_path / "x", "v9", endpoint=server.url)
    with pytest.raises(NotPossible, match="not a folder"):
        hub.push(tmp_path / "none", "people/model", "m", endpoint=server.url)


def test_a_hub_that_is_down_never_passes_old_files_for_new(
    server, folder: Path, tmp_path: Path, free_port: int
):
    hub.push(folder, "people/model", "Step 7", endpoint=server.url)
    hub.pull("people/model", tmp_path / "x", endpoint=server.url)
    with pytest.raises(BucketError, match="hf://people/model"):
        hub.pull("people/model", tmp_path / "x", endpoint=f"http://127.0.0.1:{free_port}")
