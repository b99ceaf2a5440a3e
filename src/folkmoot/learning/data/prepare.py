"""Turn text files into one token file, in blocks, so that a killed run goes on where it was.

Beside `out.bin` grow `out.bin.part` (the tokens so far) and `out.bin.progress` (which input, which
byte of it, how many tokens that made). After each block the tokens are synced first and the
progress replaced second; on the next start the part is cut back to what the progress vouches
for. Blocks depend on the inputs alone, so an interrupted run ends in the same bytes as one that
was not. `out.bin` and `out.json` (what it holds) appear only when everything is there.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt

from folkmoot.host.files import write_atomically
from folkmoot.learning.data import tokenizer
from folkmoot.learning.data.source import DataError
from folkmoot.learning.data.text import encode_many
from folkmoot.learning.data.tokenizer import Tokenizer

BLOCK = 1 << 20
"""Bytes of text that are tokenised as one piece."""
BATCH = 8 << 20
"""Bytes of text between two notes of progress; its blocks are tokenised in parallel."""
TRAINING_BYTES = 256 << 20
"""A BPE learns its merges from this much of the text; more barely changes them."""


class Preparation(msgspec.Struct, frozen=True):
    """How far preparation has come, and for which inputs that is true."""

    inputs: str
    file: int = 0
    byte: int = 0
    tokens: int = 0
    consumed: int = 0


class Block(msgspec.Struct, frozen=True):
    file: int
    byte: int
    text: bytes
    last: bool


class Prepared(msgspec.Struct, frozen=True):
    """The content of `out.json`: how to read the token file beside it."""

    tokens: int
    dtype: str
    vocab_size: int
    tokenizer: str
    files: int
    sha256: str


def prepare(
    files: Sequence[Path], tokenizer_name: str, out: Path
) -> Iterator[Preparation | Prepared]:
    """Do the work a block at a time: yields each step's progress and at last what was Prepared."""
    sizes = _sizes(files)
    out.parent.mkdir(parents=True, exist_ok=True)
    using = choose_tokenizer(files, tokenizer_name, out)
    dtype = np.dtype("<u2" if using.vocab_size <= 1 << 16 else "<u4")
    done = _resume(out, _name_inputs(files, sizes, using))
    with _open_part(out, done.tokens * dtype.itemsize) as part:
        yield done
        for batch in _batches(_blocks(files, done)):
            tokens = _encode(files, batch, using).astype(dtype)
            part.write(tokens.tobytes())
            part.flush()
            os.fsync(part.fileno())
            done = _after(done, batch, len(tokens))
            write_atomically(_beside(out, ".progress"), msgspec.json.encode(done))
            yield done
    yield _finish(out, using, dtype, done, len(files))


def choose_tokenizer(files: Sequence[Path], name: str, out: Path) -> Tokenizer:
    """The named tokenizer; `bpe:SIZE` is trained once and kept as `out.tokenizer.json`."""
    if not name.startswith("bpe:"):
        return tokenizer.load(name)
    if not name[4:].isdecimal():
        raise ValueError(f'{name}: write the size of a BPE as a number, such as "bpe:4096"')
    kept = out.with_suffix(".tokenizer.json")
    mark = hashlib.sha256(f"{name} {_sizes(files)}".encode()).hexdigest()
    marked = _beside(out, ".bpe")
    if kept.is_file() and marked.is_file() and marked.read_text() == mark:
        return tokenizer.load(str(kept))
    using = tokenizer.train_bpe(_training_texts(files), int(name[4:]))
    write_atomically(kept, using.to_json().encode())
    write_atomically(marked, mark.encode())
    return using


def _blocks(files: Sequence[Path], done: Preparation) -> Iterator[Block]:
    """Every block after `done`."""
    for number in range(done.file, len(files)):
        yield from _cut(files[number], done.byte if number == done.file else 0, number)


def _batches(blocks: Iterator[Block]) -> Iterator[list[Block]]:
    batch: list[Block] = []
    for block in blocks:
        batch.append(block)
        if sum(len(b.text) for b in batch) >= BATCH or len(batch) >= 1000:
            yield batch
            batch = []
    if batch:
        yield batch


def _encode(files: Sequence[Path], batch: list[Block], using: Tokenizer) -> npt.NDArray[np.uint32]:
    texts = [(block.text, str(files[block.file]), block.byte) for block in batch]
    end = [] if using.end is None else [using.end]
    pieces: list[npt.NDArray[np.uint32]] = []
    for block, tokens in zip(batch, encode_many(using, texts), strict=True):
        pieces.append(tokens)
        if block.last:
            pieces.append(np.array(end, dtype=np.uint32))
    return np.concatenate(pieces)


def _after(done: Preparation, batch: list[Block], tokens: int) -> Preparation:
    last = batch[-1]
    return Preparation(
        inputs=done.inputs,
        file=last.file + last.last,
        byte=0 if last.last else last.byte + len(last.text),
        tokens=done.tokens + tokens,
        consumed=done.consumed + sum(len(block.text) for block in batch),
    )


def _cut(path: Path, at: int, number: int) -> Iterator[Block]:
    """The blocks of a file from byte `at`, each cut after a line where one ends.

    A block depends on where it starts and on nothing read before, so that resuming there
    gives the same ones.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        while True:
            file.seek(at)
            text = file.read(BLOCK)
            last = at + len(text) >= size
            if len(text) < BLOCK and not last:
                raise DataError(f"{path}: ended at byte {at + len(text)} of {size}; did it change?")
            block = text if last else text[: _line_end(text)]
            yield Block(number, at, block, last)
            if last:
                return
            at += len(block)


def _line_end(text: bytes) -> int:
    """Where to cut a block: after its last line; of one endless line, between characters."""
    if newline := text.rfind(b"\n") + 1:
        return newline
    end = len(text)
    while end > max(0, len(text) - 4) and text[end - 1] & 0xC0 == 0x80:
        end -= 1
    return end - 1 if end and text[end - 1] >= 0xC0 else len(text)


def _resume(out: Path, inputs: str) -> Preparation:
    """What an earlier run of the same inputs left; otherwise a fresh start."""
    with suppress(FileNotFoundError, msgspec.DecodeError):
        done = msgspec.json.decode(_beside(out, ".progress").read_bytes(), type=Preparation)
        if done.inputs == inputs and _beside(out, ".part").is_file():
            return done
    return Preparation(inputs)


def _open_part(out: Path, size: int) -> BinaryIO:
    part = _beside(out, ".part").open("ab")
    if part.seek(0, os.SEEK_END) < size:
        part.close()
        _beside(out, ".progress").unlink()
        raise DataError(
            f"{_beside(out, '.part')}: is shorter than its progress file says; run the command"
            " again to start from the beginning"
        )
    part.truncate(size)
    return part


def _finish(
    out: Path, using: Tokenizer, dtype: np.dtype[Any], done: Preparation, files: int
) -> Prepared:
    with _beside(out, ".part").open("rb") as part:
        digest = hashlib.file_digest(part, "sha256").hexdigest()
    kept = out.with_suffix(".tokenizer.json")
    write_atomically(kept, using.to_json().encode())
    prepared = Prepared(done.tokens, dtype.name, using.vocab_size, kept.name, files, digest)
    write_atomically(out.with_suffix(".json"), msgspec.json.format(msgspec.json.encode(prepared)))
    _beside(out, ".part").replace(out)
    for suffix in (".progress", ".bpe"):
        _beside(out, suffix).unlink(missing_ok=True)
    return prepared


def _sizes(files: Sequence[Path]) -> list[tuple[str, int]]:
    if not files:
        raise DataError("no text files were given")
    try:
        return [(str(path), path.stat().st_size) for path in files]
    except OSError as error:
        raise DataError(f"{error.filename}: cannot read this file: {error.strerror}") from error


def _name_inputs(files: Sequence[Path], sizes: list[tuple[str, int]], using: Tokenizer) -> str:
    """Changes when any input, its size or time, or the tokenizer does."""
    times = [path.stat().st_mtime_ns for path in files]
    return hashlib.sha256(f"{sizes} {times} {using.to_json()}".encode()).hexdigest()


def _training_texts(files: Sequence[Path]) -> Iterator[str]:
    left = TRAINING_BYTES
    for path in files:
        for block in _cut(path, 0, 0):
            yield block.text[:left].decode(errors="ignore")
            left -= len(block.text)
            if left <= 0:
                return


def _beside(out: Path, suffix: str) -> Path:
    return out.with_name(out.name + suffix)
