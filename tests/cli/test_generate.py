"""`folkmoot generate` on folders, checkpoint stores and buckets, without `transformers`."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from folkmoot.core.model_config import GptConfig
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.checkpoints.save import save
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.models import build
from support.commands import folkmoot, refused

TINY = GptConfig(layers=1, heads=2, width=32, context=16)
WITHOUT_TRANSFORMERS = """
import sys
sys.modules["transformers"] = None
from folkmoot.cli import main
main()
"""


def run(*arguments: str) -> Result:
    return folkmoot("generate", *arguments)


@pytest.fixture
def store(tmp_path: Path) -> Bucket:
    bucket = Bucket(str(tmp_path / "checkpoints"))
    save(bucket, 1, build(TINY, 3, "cpu"), tokenizer=byte_tokenizer())
    return bucket


def test_a_model_folder_and_its_store_write_the_same_text(store: Bucket):
    from_store = run(str(store.folder), "hello", "-n", "20", "--seed", "4")
    assert from_store.exit_code == 0, from_store.stderr
    assert from_store.stdout.startswith("hello")
    assert len(from_store.stdout_bytes) > 15
    from_folder = run(str(latest(store)), "hello", "-n", "20", "--seed", "4")
    assert from_folder.stdout == from_store.stdout
    assert run(str(store.folder), "hello", "-n", "20", "--seed", "5").stdout != from_store.stdout


def test_it_runs_as_a_process_without_transformers(store: Bucket):
    command = [sys.executable, "-c", WITHOUT_TRANSFORMERS, "generate", str(store.folder), "hello"]
    answer = subprocess.run([*command, "-n", "20"], capture_output=True, check=True)
    assert answer.stdout == run(str(store.folder), "hello", "-n", "20").stdout_bytes


def test_a_checkpoint_in_s3_is_fetched(store: Bucket, s3_server, monkeypatch: pytest.MonkeyPatch):
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    url = s3_server.new_bucket()
    save(Bucket(url), 1, build(TINY, 3, "cpu"), tokenizer=byte_tokenizer())
    answer = run(url, "hello", "-n", "20")
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout == run(str(store.folder), "hello", "-n", "20").stdout


def test_a_damaged_checkpoint_is_told_and_the_one_before_used(
    store: Bucket, caplog: pytest.LogCaptureFixture
):
    save(store, 2, build(TINY, 5, "cpu"), tokenizer=byte_tokenizer())
    store.put("step-00000002/model.safetensors", b"nonsense")
    answer = run(str(store.folder), "hello", "-n", "5")
    assert answer.exit_code == 0
    assert "step-00000002/model.safetensors" in caplog.text
    assert "trying the checkpoint before" in caplog.text


def test_a_folder_without_a_checkpoint_is_one_line(tmp_path: Path):
    for where, said in ((tmp_path, "no usable checkpoint"), (tmp_path / "x", "no such folder")):
        told = refused("generate", where, "hello")
        assert said in told
        assert told.count("\n") == 1
