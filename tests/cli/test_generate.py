"""`folkmoot generate` on folders, checkpoint stores and buckets, without `transformers`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from folkmoot.core.material import Gpt
from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoint import latest, save
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.models import build

WITHOUT_TRANSFORMERS = """
import sys
sys.modules["transformers"] = None
from folkmoot.cli import main
main()
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-c", WITHOUT_TRANSFORMERS, "generate", *arguments]
    return subprocess.run(command, capture_output=True, env={**os.environ, **environment})


@pytest.fixture
def store(tmp_path: Path) -> Bucket:
    bucket = Bucket(str(tmp_path / "checkpoints"))
    model = build(Gpt(layers=1, heads=2, width=32, context=16), 3, "cpu")
    save(bucket, 1, model, tokenizer=byte_tokenizer())
    return bucket


def test_a_model_folder_and_its_store_write_the_same_text(store: Bucket):
    from_store = run(str(store.folder), "hello", "-n", "20", "--seed", "4")
    assert from_store.returncode == 0, from_store.stderr.decode()
    assert from_store.stdout.startswith(b"hello")
    assert len(from_store.stdout) > 15
    from_folder = run(str(latest(store)), "hello", "-n", "20", "--seed", "4")
    assert from_folder.stdout == from_store.stdout


def test_a_checkpoint_in_s3_is_fetched(store: Bucket, s3_server):
    url = s3_server.new_bucket()
    remote = Bucket(url, s3_server.options)
    save(remote, 1, build(Gpt(layers=1, heads=2, width=32, context=16), 3, "cpu"),
         tokenizer=byte_tokenizer())  # fmt: skip
    answer = run(url, "hello", "-n", "20", **s3_server.environment)
    assert answer.returncode == 0, answer.stderr.decode()
    assert answer.stdout == run(str(store.folder), "hello", "-n", "20").stdout


def test_a_damaged_checkpoint_is_told_and_the_one_before_used(store: Bucket):
    save(store, 2, build(Gpt(layers=1, heads=2, width=32, context=16), 5, "cpu"),
         tokenizer=byte_tokenizer())  # fmt: skip
    store.put("step-00000002/model.safetensors", b"nonsense")
    answer = run(str(store.folder), "hello", "-n", "5")
    assert answer.returncode == 0
    assert b"step-00000002/model.safetensors" in answer.stderr
    assert b"trying the checkpoint before" in answer.stderr


def test_a_folder_without_a_checkpoint_is_one_line(tmp_path: Path):
    for where, said in ((tmp_path, b"no usable checkpoint"), (tmp_path / "x", b"no such folder")):
        answer = run(str(where), "hello")
        assert answer.returncode == 1
        assert said in answer.stderr
        assert b"Traceback" not in answer.stderr
