"""The same data has the same fingerprint wherever it lies; other data of the same name has not."""

from pathlib import Path

import pytest

from folkmoot.core.coordinator.config import Model
from folkmoot.core.data_config import MixtureConfig, MixturePart, RemoteTokens, TextFiles
from folkmoot.learning.data.fingerprint import WHOLE, differing, fingerprints, written
from folkmoot.learning.data.source import DataError, FileSource


def model(path: Path, **more: str) -> Model:
    return Model(data=TextFiles((str(path),)), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [10, WHOLE, 3 * WHOLE + 7])
def test_other_bytes_or_another_length_are_seen(tmp_path: Path, size: int) -> None:
    text = bytes(range(256)) * (size // 256 + 1)
    ours, same, other = (tmp_path / name for name in ("ours", "same", "other"))
    for path in (ours, same):
        path.write_bytes(text[:size])
    found = fingerprints(model(ours))
    assert fingerprints(model(same)) == found
    for changed in (text[1 : size + 1], text[: size - 1]):
        other.write_bytes(changed)
        assert differing(written(found), fingerprints(model(other))) == ["data"]


def test_of_a_large_file_the_length_the_middle_and_the_end_count(tmp_path: Path) -> None:
    size, file = 3 * WHOLE, tmp_path / "tokens.bin"
    file.write_bytes(bytes(size))
    known = written(fingerprints(model(file)))
    amid = bytes(WHOLE) + b"x" * WHOLE + bytes(WHOLE)
    for changed in (bytes(size + 1), bytes(size - 1), bytes(size - 1) + b"x", amid):
        file.write_bytes(changed)
        assert differing(known, fingerprints(model(file))) == ["data"]


def test_a_file_behind_a_url_counts_like_a_file_here(tmp_path: Path) -> None:
    file = tmp_path / "tokens.bin"
    file.write_bytes(bytes(3 * WHOLE))
    here = fingerprints(model(file))["data"]
    remote = Model(data=RemoteTokens(("https://example.org/tokens.bin",)))
    assert fingerprints(remote, lambda url: FileSource(file))["data"] == here
    with pytest.raises(DataError):
        fingerprints(remote)


def test_parts_of_a_mixture_and_the_tokenizer_count(tmp_path: Path) -> None:
    one, two, tokenizer = (tmp_path / name for name in ("one", "two", "tokenizer.json"))
    for path in (one, two, tokenizer):
        path.write_text(path.name)

    def mixed(*paths: Path) -> Model:
        parts = tuple(MixturePart(1.0, TextFiles((str(p),))) for p in paths)
        return Model(data=MixtureConfig(parts), tokenizer=str(tokenizer))

    found = fingerprints(mixed(one, two))
    assert found != fingerprints(mixed(two, one))
    tokenizer.write_text("another")
    assert differing(written(found), fingerprints(mixed(one, two))) == ["tokenizer"]


def test_held_out_text_and_the_tokenizer_that_a_text_names_count(tmp_path: Path) -> None:
    text, held_out, folder = (tmp_path / name for name in ("text", "held_out", "tokenizer"))
    folder.mkdir()
    tokenizer = folder / "tokenizer.json"
    for path in (text, held_out, tokenizer):
        path.write_text(path.name)
    named = TextFiles((str(text),), str(folder))
    whole = Model(data=named, held_out=TextFiles((str(held_out),)))
    known = written(fingerprints(whole))
    assert [part.partition(":")[0] for part in known.split()] == ["data", "held_out", "tokenizer"]
    for path, name in ((held_out, "held_out"), (tokenizer, "tokenizer")):
        path.write_text("another")
        assert differing(known, fingerprints(whole)) == [name]
        path.write_text(path.name)
    assert not differing(known, fingerprints(whole))
