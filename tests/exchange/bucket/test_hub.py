"""The real Hugging Face client against a server that speaks the Hub's endpoints."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from torch import nn

from folkmoot.core.model_config import GptConfig
from folkmoot.exchange.bucket import (
    AccessDenied,
    Bucket,
    BucketError,
    HubRepository,
    Missing,
    NotPossible,
    ObjectInfo,
    TooLarge,
    open_checkpoints,
)
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.checkpoints.manifest import CheckpointError
from folkmoot.learning.checkpoints.save import prune, save
from folkmoot.learning.checkpoints.state_hash import state_hash
from folkmoot.learning.checkpoints.stored_hash import stored_hash
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.models import build
from support.hub_server import HubServer
from support.servers import serving

URL = "hf://people/model"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    running = HubServer("hf_right")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "ENDPOINT", running.url)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", running.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    with serving(running):
        yield running


@pytest.fixture(scope="module")
def model() -> nn.Module:
    return build(GptConfig(layers=2, heads=2, width=64, context=32), 3, "cpu")


def store(model: nn.Module, step: int = 7) -> str:
    return save(open_checkpoints(URL), step, model, tokenizer=byte_tokenizer())


def test_a_url_of_the_hub_opens_a_repository_and_others_a_bucket(tmp_path: Path) -> None:
    assert isinstance(open_checkpoints(f"{URL}/"), HubRepository)
    assert isinstance(open_checkpoints(str(tmp_path)), Bucket)
    with pytest.raises(NotPossible, match="hf://owner/name"):
        open_checkpoints("hf://model")


def test_a_checkpoint_is_stored_found_checked_and_brought_back(
    server: HubServer, model: nn.Module, tmp_path: Path
) -> None:
    name = store(model)
    repository = open_checkpoints(URL)
    assert stored_hash(repository, name, 7, lambda: False) == state_hash(model).root
    folder = latest(repository, tmp_path)
    files = {f"{name}/{file.name}": file.read_bytes() for file in folder.iterdir()}
    manifest = f"{name}/manifest.json"
    here = {
        key: content for key, content in server.files("people/model").items() if key != manifest
    }
    assert files == here
    assert max(map(len, here.values())) > 100_000  # through git-lfs


def test_older_checkpoints_are_removed(server: HubServer, model: nn.Module) -> None:
    names = [store(model, step) for step in (1, 2, 3)]
    assert prune(open_checkpoints(URL), keep=2, newest=names[-1]) == names[:1]
    kept = {key.split("/")[0] for key in server.files("people/model")}
    assert kept == {"step-00000002", "step-00000003"}


def test_a_checkpoint_that_breaks_off_does_not_count(
    server: HubServer, model: nn.Module, tmp_path: Path
) -> None:
    store(model)
    server.fail_lfs = True
    server.blobs.clear()
    with pytest.raises(BucketError):
        store(build(GptConfig(layers=2, heads=2, width=64, context=32), 4, "cpu"), step=8)
    assert latest(open_checkpoints(URL), tmp_path).name == "step-00000007"


def test_a_wrong_token_is_denied(
    server: HubServer, model: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(AccessDenied, match=URL):
        store(model)


def test_what_is_not_there_is_missing(server: HubServer, tmp_path: Path) -> None:
    repository = open_checkpoints(URL)
    assert repository.list() == []
    repository.delete("a/b")
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        latest(repository, tmp_path)
    with pytest.raises(Missing, match="no such repository"):
        list(repository.stream("a/b", 10))
    repository.put("a/b", [b"12", b"345"])
    repository.put("ab/c", [b""])
    assert repository.list("a") == [ObjectInfo("a/b", 5)]
    with pytest.raises(Missing, match="no such file"):
        list(repository.stream("a/c", 10))
    with pytest.raises(TooLarge, match="5 bytes, at most 4"):
        list(repository.stream("a/b", 4))
    assert b"".join(repository.stream("a/b", 5)) == b"12345"


def test_a_hub_that_is_down_is_an_error_and_not_an_empty_repository(
    server: HubServer, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free_port}")
    with pytest.raises(BucketError, match=URL):
        open_checkpoints(URL).list()
