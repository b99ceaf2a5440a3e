"""Tokenizers: bytes are bytes, BPE is lossless, and `transformers` reads both."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.learning.data import tokenizer

TEXT = "def spam(eggs):\n    return eggs + 1\n\n\nclass Ham:\n    pass\n" * 50
BYTES = tokenizer.byte_tokenizer()
BPE = tokenizer.train_bpe([TEXT], 300)


@given(text=st.text())
@pytest.mark.parametrize("using", [BYTES, BPE])
def test_any_text_comes_back(using: tokenizer.Tokenizer, text: str):
    assert using.decode(using.encode(text)) == text


def test_a_token_of_bytes_is_the_byte():
    assert BYTES.encode("aé") == list("aé".encode())
    assert BYTES.vocab_size == 256
    assert BYTES.inner.encode("aé\n\0").ids == list("aé\n\0".encode())


def test_training_twice_gives_the_same_tokenizer():
    assert tokenizer.train_bpe([TEXT], 300).to_json() == BPE.to_json()
    assert BPE.vocab_size <= 300
    assert len(BPE.encode(TEXT)) < len(TEXT) / 3


@pytest.mark.parametrize("using", [BYTES, BPE])
def test_transformers_reads_the_file_and_agrees(using: tokenizer.Tokenizer, tmp_path: Path):
    import transformers  # takes seconds, also of workers that only collect this file

    (tmp_path / "tokenizer.json").write_text(using.to_json())
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    assert theirs.encode(TEXT) == using.encode(TEXT)
    again = tokenizer.load(str(tmp_path))
    assert again.encode(TEXT) == using.encode(TEXT)
    assert (again.end, again.is_bytes) == (using.end, using.is_bytes)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path):
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ValueError, match=r"tokenizer\.json: not a tokenizer"):
        tokenizer.load(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="no such tokenizer"):
        tokenizer.load(str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="too small"):
        tokenizer.train_bpe([TEXT], 200)
