"""Preparing data: interrupted anywhere, it ends in the same bytes."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from folkmoot.learning.data import DataError, prepare, tokenizer

WORDS = ["def", "return", "class", "import", "self", "for", "yield", "None\n", "", "", "\n\n"]


def corpus(folder: Path, sizes=(3000, 0, 7000, 40)) -> list[Path]:
    rng = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, size in enumerate(sizes):
        files.append(folder / f"{number}.txt")
        files[-1].write_text(" ".join(rng.choices(WORDS, k=size // 5))[:size])
    return files


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "BLOCK", 500)
    monkeypatch.setattr(prepare, "BATCH", 1500)


def run(files: list[Path], name: str, out: Path, stop_after: int | None = None) -> list:
    steps = []
    for number, step in enumerate(prepare.prepare(files, name, out)):
        steps.append(step)
        if number == stop_after:
            break
    return steps


@pytest.mark.parametrize("name", ["bytes", "bpe:300"])
def test_the_token_file_holds_every_document_and_its_end(tmp_path: Path, name: str):
    files = corpus(tmp_path / "in")
    prepared = run(files, name, tmp_path / "out.bin")[-1]
    using = tokenizer.load(str(tmp_path / "out.tokenizer.json"))
    tokens = np.fromfile(tmp_path / "out.bin", dtype=prepared.dtype)
    assert len(tokens) == prepared.tokens
    documents = np.split(tokens, np.flatnonzero(tokens == using.end) + 1)
    assert len(documents) == len(files) + 1
    assert [using.decode(d[:-1]) for d in documents[:-1]] == [f.read_text() for f in files]
    assert json.loads((tmp_path / "out.json").read_text())["vocab_size"] == using.vocab_size
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "in", "out.bin", "out.json", "out.tokenizer.json",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["bytes", "bpe:300"])
def test_stopped_anywhere_it_ends_in_the_same_bytes(tmp_path: Path, name: str):
    files = corpus(tmp_path / "in")
    steps = run(files, name, tmp_path / "whole.bin")
    whole = (tmp_path / "whole.bin").read_bytes()
    for stop in range(len(steps) - 1):
        out = tmp_path / f"stop{stop}.bin"
        run(files, name, out, stop_after=stop)
        assert not out.exists()
        with Path(f"{out}.part").open("ab") as part:
            part.write(b"half a block that was never noted")
        again = run(files, name, out)
        assert out.read_bytes() == whole
        assert again[0].consumed == steps[stop].consumed


def test_changed_inputs_start_over(tmp_path: Path):
    files = corpus(tmp_path / "in")
    run(files, "bytes", tmp_path / "out.bin", stop_after=3)
    files[0].write_text("something else")
    steps = run(files, "bytes", tmp_path / "out.bin")
    assert steps[0].consumed == 0
    assert (tmp_path / "out.bin").read_bytes().startswith("something".encode("utf-16-le"))


def test_a_damaged_part_is_noticed(tmp_path: Path):
    files = corpus(tmp_path / "in")
    run(files, "bytes", tmp_path / "out.bin", stop_after=3)
    os.truncate(tmp_path / "out.bin.part", 10)
    with pytest.raises(DataError, match="shorter than its progress file says"):
        run(files, "bytes", tmp_path / "out.bin")
    run(files, "bytes", tmp_path / "out.bin")
    assert (tmp_path / "out.bin").is_file()


def test_a_damaged_progress_file_starts_over(tmp_path: Path):
    files = corpus(tmp_path / "in")
    run(files, "bytes", tmp_path / "out.bin", stop_after=3)
    (tmp_path / "out.bin.progress").write_bytes(b'{"file": "x"')
    assert run(files, "bytes", tmp_path / "out.bin")[0].consumed == 0


def test_text_that_is_not_utf8_is_named_with_its_byte(tmp_path: Path):
    files = corpus(tmp_path / "in", (3000,))
    text = files[0].read_bytes()
    files[0].write_bytes(text[:2000] + b"\xff" + text[2000:])
    (tmp_path / "t.json").write_text(tokenizer.train_bpe(["a b"], 260).to_json())
    with pytest.raises(DataError, match=r"0\.txt: byte 2000 is not UTF-8"):
        run(files, str(tmp_path / "t.json"), tmp_path / "out.bin")
    run(files, "bytes", tmp_path / "out.bin")


def test_a_line_longer_than_a_block_is_cut_between_characters(tmp_path: Path):
    (tmp_path / "in.txt").write_text("é€🙂" * 1000)
    run([tmp_path / "in.txt"], "bpe:270", tmp_path / "out.bin")
    using = tokenizer.load(str(tmp_path / "out.tokenizer.json"))
    tokens = np.fromfile(tmp_path / "out.bin", dtype=np.uint16)
    assert using.decode(tokens[:-1]) == "é€🙂" * 1000


@pytest.mark.parametrize("name", ["bpe:many", "nothing.json"])
def test_a_tokenizer_that_does_not_exist_is_refused(tmp_path: Path, name: str):
    with pytest.raises(ValueError, match=name):
        run(corpus(tmp_path / "in"), name, tmp_path / "out.bin")


def test_a_missing_input_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"gone\.txt: cannot read this file: No such file"):
        run([tmp_path / "gone.txt"], "bytes", tmp_path / "out.bin")


def test_a_full_disk_is_an_error_and_the_run_continues_after(small_disk: Path, tmp_path: Path):
    files = [tmp_path / "in.txt"]
    files[0].write_bytes(os.urandom(3 << 20))
    hog = small_disk / "hog"
    hog.write_bytes(b"\0" * (4 << 20))
    with pytest.raises(OSError, match="No space left"):
        run(files, "bytes", small_disk / "out.bin")
    hog.unlink()
    assert run(files, "bytes", small_disk / "out.bin")[0].consumed > 0
    whole = np.fromfile(small_disk / "out.bin", dtype=np.uint16).astype(np.uint8).tobytes()
    assert whole == files[0].read_bytes() + b"\0"
