"""Every kind of source gives the tokens that were put in, and only errors that say where."""

import contextlib
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.data_config import (
    DataConfig,
    MixtureConfig,
    MixturePart,
    ParquetFiles,
    RemoteTokens,
    TextFiles,
    TokenFiles,
)
from folkmoot.exchange.bucket import open_object
from folkmoot.learning.data import DataError, open_data
from folkmoot.learning.data.source import FileSource
from folkmoot.learning.data.tokens import TokenFile
from support.servers import FileServer

TOKENS = np.random.default_rng(0).integers(0, 60_000, 1000)


def opened(source, length=10, **options):
    keywords = {key: options.pop(key) for key in ("vocab_size", "open_url") if key in options}
    return open_data(DataConfig(source, length, **{"shuffle": False, **options}), 7, **keywords)


def write(path: Path, tokens, kind: str) -> TokenFiles:
    if kind == "npy":
        np.save(path.with_suffix(".npy"), tokens.astype(np.uint32))
        return TokenFiles((str(path.with_suffix(".npy")),))
    tokens.astype(kind).tofile(path.with_suffix(".bin"))
    return TokenFiles((str(path.with_suffix(".bin")),), dtype=kind)


@pytest.mark.parametrize("kind", ["uint16", "uint32", "npy"])
def test_sequences_are_cut_with_one_token_of_overlap(tmp_path: Path, kind: str):
    data = opened(write(tmp_path / "t", TOKENS, kind))
    assert data.count == 99
    found = data.samples([0, 1, 98])
    for row, start in zip(found, (0, 10, 980), strict=True):
        assert row.tolist() == TOKENS[start : start + 11].tolist()


def test_sequences_never_span_two_files(tmp_path: Path):
    for name, count in (("a", 25), ("b", 5), ("c", 31)):
        np.arange(count, dtype=np.uint16).tofile(tmp_path / f"{name}.bin")
    paths = tuple(str(tmp_path / f"{name}.bin") for name in "abc")
    data = opened(TokenFiles(paths))
    assert data.count == 2 + 0 + 3
    starts = data.samples(range(5))[:, 0].tolist()
    assert starts == [0, 10, 0, 10, 20]


def test_a_shuffle_is_seeded_and_loses_nothing(tmp_path: Path):
    source = write(tmp_path / "t", TOKENS, "uint16")
    plain = opened(source).samples(range(99)).tolist()
    shuffled = opened(source, shuffle=True).samples(range(99)).tolist()
    assert shuffled == opened(source, shuffle=True).samples(range(99)).tolist()
    assert shuffled != plain
    assert sorted(shuffled) == sorted(plain)
    assert open_data(DataConfig(source, 10), 8).samples(range(99)).tolist() != shuffled


def test_only_the_bytes_asked_for_are_read(tmp_path: Path):
    class Counting(FileSource):
        read_bytes = 0

        def read(self, start: int, length: int) -> bytes:
            type(self).read_bytes += length
            return super().read(start, length)

    source = write(tmp_path / "t", TOKENS, "uint16")
    remote = RemoteTokens(source.paths)
    data = opened(remote, open_url=Counting)
    before = Counting.read_bytes
    data.samples([3, 50])
    assert Counting.read_bytes - before == 2 * 11 * 2


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"nothing\.bin: cannot open this data file: No such file"):
        opened(TokenFiles((str(tmp_path / "nothing.bin"),)))


def test_a_file_of_half_a_token_is_named_with_the_byte(tmp_path: Path):
    (tmp_path / "t.bin").write_bytes(b"\0" * 101)
    with pytest.raises(DataError, match=r"t\.bin: its 101 bytes .* begins at byte 100"):
        opened(TokenFiles((str(tmp_path / "t.bin"),)))


def test_a_file_cut_short_while_open_is_an_error_not_a_crash(tmp_path: Path):
    source = write(tmp_path / "t", TOKENS, "uint16")
    data = opened(source)
    os.truncate(source.paths[0], 1000)
    assert data.samples([0])[0].tolist() == TOKENS[:11].tolist()
    with pytest.raises(DataError, match=r"t\.bin: the file ends at byte 1000, .* 1960 to 1982"):
        data.samples([98])


def test_too_little_data_for_one_sequence_is_an_error(tmp_path: Path):
    with pytest.raises(DataError, match="10 tokens hold no sequence of 10"):
        opened(write(tmp_path / "t", TOKENS[:10], "uint16"))


def test_a_token_outside_the_vocabulary_is_named_with_its_byte(tmp_path: Path):
    tokens = TOKENS % 256
    tokens[500] = 300
    data = opened(write(tmp_path / "t", tokens, "uint16"), vocab_size=256)
    data.samples([0, 48])
    with pytest.raises(DataError, match=r"t\.bin: token 300 at byte 1000 is not in .* 256"):
        data.samples([0, 50])


@pytest.mark.parametrize("ids", [[], [-1], [0, -5]])
def test_ids_that_mean_nothing_are_refused(tmp_path: Path, ids: list[int]):
    with pytest.raises(ValueError, match="from 0 up"):
        opened(write(tmp_path / "t", TOKENS, "uint16")).samples(ids)


def test_an_npy_of_the_wrong_kind_or_length_is_refused(tmp_path: Path):
    path = tmp_path / "t.npy"
    np.save(path, TOKENS.astype(np.float32))
    with pytest.raises(DataError, match="float32 cannot be used"):
        opened(TokenFiles((str(path),)))
    np.save(path, TOKENS.astype(np.uint16))
    os.truncate(path, 1000)
    with pytest.raises(DataError, match=r"promises 1000 tokens to byte 2128, .* byte 1000"):
        opened(TokenFiles((str(path),)))


@given(header=st.binary(max_size=200))
def test_any_npy_header_is_read_or_refused(header: bytes, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("npy") / "t.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with contextlib.suppress(DataError):
        TokenFile(FileSource(path), "uint16")


def test_text_is_tokenised_on_the_fly(tmp_path: Path):
    (tmp_path / "a.txt").write_text("hello world")
    (tmp_path / "b.txt").write_bytes(b"\xff\xfe\x00")
    data = opened(TextFiles((str(tmp_path / "a.txt"), str(tmp_path / "b.txt"))), length=14)
    assert bytes(data.samples([0])[0].tolist()) == b"hello world\0\xff\xfe\0"


def test_a_missing_text_file_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"none\.txt: cannot read this text file"):
        opened(TextFiles((str(tmp_path / "none.txt"),)))


def parquet(path: Path, rows, column="input_ids") -> ParquetFiles:
    pq.write_table(pa.table({column: rows}), path, row_group_size=7)
    return ParquetFiles((str(path.parent),), column=column)


def test_rows_of_a_parquet_dataset_are_samples(tmp_path: Path):
    rows = TOKENS[:600].reshape(40, 15)
    data = opened(parquet(tmp_path / "train-0.parquet", rows.tolist()))
    assert data.count == 40
    assert data.samples([39, 0, 13]).tolist() == rows[[39, 0, 13], :11].tolist()


def test_a_parquet_row_that_is_too_short_is_named(tmp_path: Path):
    source = parquet(tmp_path / "x.parquet", [[1] * 11] * 9 + [[1] * 10, None])
    data = opened(source)
    for row, held in ((9, 10), (10, 0)):
        with pytest.raises(DataError, match=rf"row {row - 7} of row group 1, .* has {held} tokens"):
            data.samples([row])


def test_parquet_that_is_broken_or_of_another_shape_is_refused(tmp_path: Path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(DataError, match=r"x\.parquet: cannot be read as parquet"):
        opened(ParquetFiles((str(tmp_path / "x.parquet"),)))
    with pytest.raises(DataError, match="no column 'nope'; it has input_ids"):
        opened(ParquetFiles((parquet(tmp_path / "x.parquet", [[1]]).paths[0],), column="nope"))
    with pytest.raises(DataError, match="holds string, not lists"):
        opened(parquet(tmp_path / "x.parquet", ["text"], column="text"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no parquet file here"):
        opened(ParquetFiles((str(tmp_path / "empty"),)))


def test_remote_tokens_come_by_ranges_through_faults(tmp_path: Path, file_server: FileServer):
    write(file_server.folder / "t", TOKENS, "uint16")
    data = opened(RemoteTokens((f"{file_server.url}/t.bin",)), open_url=open_object)
    file_server.faults += ["503", "cut"]
    file_server.requests.clear()
    assert data.samples([5, 90])[1].tolist() == TOKENS[900:911].tolist()
    assert set(file_server.requests) == {"GET bytes=100-1821"}


def test_remote_tokens_need_someone_to_open_them():
    with pytest.raises(DataError, match="nothing was given to open URLs"):
        opened(RemoteTokens(("https://example.org/t.bin",)))


def test_a_mixture_of_kinds(tmp_path: Path):
    (tmp_path / "a.txt").write_text("x" * 500)
    tokens = write(tmp_path / "t", TOKENS, "uint16")
    source = MixtureConfig(
        (MixturePart(3, tokens), MixturePart(1, TextFiles((str(tmp_path / "a.txt"),))))
    )
    found = opened(source, wrap=True).samples(range(400))
    assert (found[:, 0] == ord("x")).sum() == pytest.approx(100, abs=2)
