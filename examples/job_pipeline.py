"""Source → Tokenizer → Sampler → Trainer on real text, with workers killed on the way.

The text is Python's standard library. Every stage loops by itself: it pulls a batch from a channel,
processes it and puts what came of it into the next. The trainer learns which byte follows which two
others; since that is counting, its model tells whether every record came through exactly once: it
must be the same, to the last count, as one that was made of the files directly.

    python examples/job_pipeline.py                # a tokenizer, a sampler and the trainer die
    python examples/job_pipeline.py --files 100 --nobody-dies
    python examples/job_pipeline.py --ray-address auto
"""

import argparse
import os
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from job_watch import add_where, deaths, run_here, tell_end

from folkmoot.core.job import JobSpec
from folkmoot.host.files import StagedFile
from folkmoot.unified.api import JobBuilder, SelfLoop
from folkmoot.unified.channel import Batch
from folkmoot.unified.channel.intervals import Intervals

WINDOW = 64


def texts(files: int) -> Iterator[str]:
    """Paragraphs of the standard library's modules, always in the same order."""
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted(library.glob("*.py"))[:files]:
        yield from path.read_text(errors="replace").split("\n\n")


class Source(SelfLoop):
    def __init__(self, files: int = 20) -> None:
        self.files = files

    def source(self) -> Iterable[str]:
        return texts(self.files)


class Mortal(SelfLoop):
    """Whoever is the first to get this record is killed in the middle of it; 0 is never."""

    def __init__(self, folder: str, dies_at: int = 0) -> None:
        self.died, self.dies_at = Path(folder) / f"{self.actor.role}.died", dies_at

    def perhaps_die(self, batch: Sequence[Any]) -> None:
        assert isinstance(batch, Batch)
        if self.dies_at in batch.ids and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Tokenizer(Mortal):
    """A token is a byte, and 0 ends a text."""

    def process(self, batch: Sequence[str]) -> list[Any]:
        self.perhaps_die(batch)
        return [tokens(text) for text in batch]


def tokens(text: str) -> Any:
    return np.frombuffer(text.encode() + b"\0", np.uint8)


class Sampler(Mortal):
    """Cuts texts into windows that overlap by two tokens, so that no triple is lost or doubled."""

    def process(self, batch: Sequence[Any]) -> list[Any]:
        self.perhaps_die(batch)
        return [text[at : at + WINDOW + 2] for text in batch for at in starts(len(text))]


def starts(length: int) -> range:
    return range(0, max(length - 2, 0), WINDOW)


class Trainer(Mortal):
    """Counts triples. What it has learned and from which records is written down as one."""

    batch_size = 512

    def __init__(self, folder: str, dies_at: int = 0) -> None:
        super().__init__(folder, dies_at)
        self.path = Path(folder) / "model"
        self.counts, self.seen = load(self.path)

    def process(self, batch: Sequence[Any]) -> None:
        assert isinstance(batch, Batch)
        new = [w for i, w in zip(batch.ids, batch, strict=True) if i not in self.seen]
        for window in new:
            count(window, self.counts)
        for span in batch.spans:
            self.seen.add(*span)
        self.save()  # before the batch is acked
        self.perhaps_die(batch)

    def save(self) -> None:
        with StagedFile(self.path) as staged:
            used = np.array(list(self.seen)).reshape(-1, 2)
            staged.write(np.int64(len(used)).tobytes() + used.tobytes() + self.counts.tobytes())
            staged.commit(durable=False)


def load(path: Path) -> tuple[Any, Intervals]:
    """The counts of a model, and the ids of the records that it was made from."""
    if not path.exists():
        return np.zeros(2**16, np.int64), Intervals()
    numbers = np.frombuffer(path.read_bytes(), np.int64)
    used = numbers[1 : 1 + 2 * numbers[0]].reshape(-1, 2).tolist()
    return numbers[1 + 2 * numbers[0] :].copy(), Intervals(map(tuple, used))


def count(window: Any, counts: Any) -> None:
    """Triples, of which the first two tokens share one of 256 places, to keep the model small."""
    a, b, c = (window[at : len(window) - 2 + at].astype(np.int64) for at in range(3))
    np.add.at(counts, (31 * a + b) % 256 * 256 + c, 1)


def bits_per_token(counts: Any) -> float:
    table = counts.reshape(256, 256)
    share = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    return float(-(table * np.log2(np.where(share > 0, share, 1))).sum() / table.sum())


def make_job(files: int, folder: Path, dies_at: int) -> JobSpec:
    job = JobBuilder("pipeline").global_env(OMP_NUM_THREADS="1")
    for name in ("texts", "tokens", "windows"):
        job.channel(name, capacity=2048)
    mortal = {"folder": str(folder), "dies_at": dies_at}
    source = job.role("source").run("job_pipeline:Source").config(files=files)
    tokenizer = job.role("tokenizer").run("job_pipeline:Tokenizer").total(2).config(mortal)
    sampler = job.role("sampler").run("job_pipeline:Sampler").total(2).config(mortal)
    trainer = job.role("trainer").run("job_pipeline:Trainer").config(mortal)
    source.backend("self_loop").writes("texts")
    tokenizer.backend("self_loop").reads("texts").writes("tokens")
    sampler.backend("self_loop").reads("tokens").writes("windows")
    trainer.backend("self_loop").reads("windows")
    for role in (source, tokenizer, sampler, trainer):
        role.resource(cpu=0.25)  # they wait for each other most of the time
    return job.build()


def counted_directly(files: int) -> Any:
    counts = np.zeros(2**16, np.int64)
    for text in texts(files):
        count(tokens(text), counts)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description="A pipeline of four roles, with deaths.")
    parser.add_argument("--files", type=int, default=40, help="modules of the standard library")
    parser.add_argument("--nobody-dies", action="store_true")
    add_where(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, began = Path(name), time.monotonic()
        job = make_job(options.files, folder, 0 if options.nobody_dies else 100)
        outcome = run_here(job, folder / "job", options.ray_address)
        counts, seen = load(folder / "model")
        died = deaths(folder / "job")
    expected = counted_directly(options.files)
    tell_end(outcome, time.monotonic() - began, died)
    print(f"{len(seen)} windows, {counts.sum()} triples, {bits_per_token(counts):.2f} bits a token")
    same = bool((counts == expected).all())
    print("every record came through exactly once" if same else "NOT the same as counted directly")
    return 0 if same and outcome.exit_code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
