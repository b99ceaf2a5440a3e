"""A model that is hashed while it is written has the digest and the bytes of its file."""

import os
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from blake3 import blake3

from folkmoot.federated.model_file.hashing_writer import MAPPED_PIECE, PIECE, HashingWriter
from folkmoot.federated.model_file.layout import layout_of
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.model_file.writer import reopened
from support.models import save_model


def model(*sizes):
    rng = np.random.default_rng(sum(sizes))
    return {f"a{i}": rng.standard_normal(size, np.float32) for i, size in enumerate(sizes)}


def written(path, arrays, blocks, threads=1, **options):
    """Write `arrays` as `blocks`, which are (name, start, stop); the digest."""
    writer = HashingWriter(path, layout_of(arrays), **options)
    with ThreadPoolExecutor(threads) as pool:
        for done in [
            pool.submit(writer.write, name, start, arrays[name][start:stop])
            for name, start, stop in blocks
        ]:
            done.result()
    digest = writer.digest()
    writer.commit(durable=False)
    return digest


def cut(arrays, size):
    return [
        (name, start, min(start + size, array.size))
        for name, array in arrays.items()
        for start in range(0, array.size, size)
    ]


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("size", [1, 1000, PIECE // 4 - 32, PIECE // 4, 700_000, 5 * PIECE])
def test_the_digest_is_that_of_the_body_another_writer_makes(tmp_path, size, mapped):
    arrays = model(size, 3, size)
    digest = written(tmp_path / "a", arrays, cut(arrays, 65_536), mapped=mapped)
    save_model(tmp_path / "b", arrays)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert digest == blake3((tmp_path / "b").read_bytes()).digest()


@pytest.mark.parametrize("mapped", [False, True])
def test_whole_arrays_and_small_blocks_make_the_same_file(tmp_path, mapped):
    arrays = model(1_000_000, 12_345)
    whole = written(tmp_path / "a", arrays, cut(arrays, 10**9), mapped=mapped)
    small = written(tmp_path / "b", arrays, cut(arrays, 7777), mapped=mapped)
    assert whole == small == blake3((tmp_path / "a").read_bytes()).digest()


@pytest.mark.parametrize("seed", range(4))
def test_neither_threads_nor_the_order_of_blocks_change_the_digest(tmp_path, seed):
    arrays = model(3_000_000)
    blocks = cut(arrays, 50_000)
    random.Random(seed).shuffle(blocks)  # far more out of order than threads ever are
    digest = written(tmp_path / "a", arrays, blocks, threads=4, mapped=bool(seed % 2))
    assert digest == blake3((tmp_path / "a").read_bytes()).digest()
    with ModelFile(tmp_path / "a") as read:
        assert np.array_equal(read.arrays()["a0"], arrays["a0"])


@pytest.mark.parametrize("missing", [0, 3])
def test_a_model_with_a_block_missing_has_no_digest_and_no_name(tmp_path, missing):
    arrays = model(2 * MAPPED_PIECE // 4)
    blocks = cut(arrays, 100_000)
    del blocks[missing]
    with pytest.raises(ValueError, match="no digest yet"):
        written(tmp_path / "a", arrays, blocks, mapped=True)
    assert not (tmp_path / "a").exists()


def test_a_block_written_twice_is_no_model(tmp_path):
    arrays = model(1_000_000)
    blocks = cut(arrays, 100_000)
    with pytest.raises(ValueError, match="no digest yet"):
        written(tmp_path / "a", arrays, [*blocks[:-1], blocks[0]])


def test_a_name_is_given_to_what_is_on_the_disk(tmp_path, monkeypatch):
    arrays, seen = model(1000, 1000), []
    sync, replace = os.fdatasync, os.replace
    monkeypatch.setattr(os, "fdatasync", lambda fd: (seen.append("body"), sync(fd)))
    monkeypatch.setattr(os, "replace", lambda *names: (seen.append("name"), replace(*names)))
    writer = HashingWriter(tmp_path / "0" / "global", layout_of(arrays))
    writer.write("a0", 0, arrays["a0"])
    seen.append("last byte")
    writer.write("a1", 0, arrays["a1"])
    writer.commit()
    assert seen[-3:] == ["last byte", "body", "name"]


def test_who_reads_a_model_before_it_has_a_name_holds_its_file(tmp_path):
    """Nobody writes over it: neither while it has no name, nor when it was pruned."""
    arrays = model(1000)
    written(tmp_path / "spare", arrays, cut(arrays, 100))
    writer = HashingWriter(tmp_path / "a", layout_of(arrays), tmp_path / "spare")
    writer.write_all(arrays)
    with writer.open_unnamed() as file:
        writer.commit()
        os.rename(tmp_path / "a", tmp_path / "spare")
        assert reopened(tmp_path / "spare", tmp_path / "b") == -1
        save_model(tmp_path / "c", arrays)
        assert file.read() == (tmp_path / "c").read_bytes()
