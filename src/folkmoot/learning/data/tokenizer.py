"""Text to tokens and back: bytes, a BPE trained on the spot, or a `tokenizer.json`.

All three are a `tokenizers.Tokenizer`, so every checkpoint can carry one that `transformers`
loads. With `bytes` a token *is* a byte (vocabulary 256) and 0 ends a document.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from folkmoot.host.files import read_text

END = "<|end|>"


class Tokenizer:
    def __init__(self, inner: tokenizers.Tokenizer, end: int | None, is_bytes: bool) -> None:
        self.inner, self.end, self.is_bytes = inner, end, is_bytes
        self.vocab_size = inner.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        return list(text.encode()) if self.is_bytes else self.encode_batch([text])[0].tolist()

    def encode_batch(self, texts: Sequence[str]) -> list[npt.NDArray[np.uint32]]:
        """Tokens of each text, on all cores."""
        found = self.inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(one.ids, dtype=np.uint32) for one in found]

    def decode(self, tokens: Sequence[int]) -> str:
        if self.is_bytes:
            return bytes(map(int, tokens)).decode(errors="replace")
        return str(self.inner.decode(list(tokens), skip_special_tokens=True))

    def to_json(self) -> str:
        return str(self.inner.to_str(pretty=False))


def byte_tokenizer() -> Tokenizer:
    """Token n is byte n, written in the alphabet byte-level tokenizers use for bytes."""
    vocab = {character: byte for byte, character in _byte_characters().items()}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    return Tokenizer(inner, end=0, is_bytes=True)


def train_bpe(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Byte-level BPE: any text can be written in it. The same texts give the same tokens."""
    if vocab_size < 257:
        raise ValueError(
            f"a BPE of {vocab_size} tokens is too small; 256 bytes and an end need 257"
        )
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return Tokenizer(inner, inner.token_to_id(END), is_bytes=False)


def from_json(text: str, name: str = "tokenizer.json") -> Tokenizer:
    """A tokenizer from the content of a `tokenizer.json`."""
    try:
        inner = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exception for bad content
        raise ValueError(f"{name}: not a tokenizer: {error}") from error
    if inner.get_vocab() == byte_tokenizer().inner.get_vocab():
        return byte_tokenizer()
    ends = (END, "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "[SEP]")
    found = (inner.token_to_id(end) for end in ends)
    return Tokenizer(inner, next((i for i in found if i is not None), None), is_bytes=False)


def load(name: str) -> Tokenizer:
    """`bytes`, the path of a `tokenizer.json`, or a folder that holds one."""
    if name == "bytes":
        return byte_tokenizer()
    path = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    if not path.is_file():
        raise ValueError(
            f'{name}: no such tokenizer; give "bytes", "bpe:SIZE" (data prepare only), or the'
            " path of a tokenizer.json"
        )
    return from_json(read_text(path), str(path))


def _byte_characters() -> dict[int, str]:
    """GPT-2's printable stand-in for each byte."""
    plain = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {b: chr(256 + n) for n, b in enumerate(others)}
