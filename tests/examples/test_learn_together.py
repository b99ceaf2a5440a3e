"""The demo, small: it learns, plots, samples and keeps a checkpoint, also after Ctrl-C."""

import json
import signal
import subprocess
from pathlib import Path

from folkmoot.exchange.bucket import Bucket
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.checkpoints.load import load_model, load_tokenizer
from support.examples import command, run_example

SMALL = ["--files", "60", "--clients", "2", "--batch", "2", "--width", "32", "--vocabulary", "400"]


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    called = command("learn_together", *SMALL, "--out", out, *more)
    return subprocess.Popen(called, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_demo_learns_and_leaves_a_checkpoint(tmp_path: Path):
    said = run_example("learn_together", *SMALL, "--out", tmp_path, "--steps", "12")
    assert "round   12/12" in said
    assert "What the model writes:" in said
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
    folder = latest(Bucket(str(tmp_path / "checkpoints")))
    assert json.loads((folder / "progress.json").read_text())["step"] == 12
    assert load_model(folder).config.vocab_size == load_tokenizer(folder).vocab_size


def test_ctrl_c_ends_the_demo_with_a_checkpoint(tmp_path: Path):
    process = start(tmp_path, "--steps", "100000")
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("round "):
            break
    process.send_signal(signal.SIGINT)
    said, error = process.communicate()
    assert process.returncode == 0, error
    assert "Stopped: keeping what was learnt." in said
    folder = latest(Bucket(str(tmp_path / "checkpoints")))
    assert 0 < json.loads((folder / "progress.json").read_text())["step"] < 100000
