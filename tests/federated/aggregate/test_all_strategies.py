"""What every strategy promises: the same files give the same bits, in little memory."""

import tracemalloc
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pytest

from folkmoot.federated.aggregate import Closing, ModelUpdate, spans
from folkmoot.federated.aggregate.clipped import Clipped
from folkmoot.federated.aggregate.fedavg import FedAvg
from folkmoot.federated.aggregate.fedbuff import FedBuff
from folkmoot.federated.aggregate.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from folkmoot.federated.aggregate.in_memory import combine_arrays
from folkmoot.federated.aggregate.krum import Krum
from folkmoot.federated.aggregate.private import Private
from folkmoot.federated.aggregate.spans import CombineFailed
from folkmoot.federated.aggregate.trimmed_mean import Median, TrimmedMean
from folkmoot.federated.model_file.reader import ModelFile
from folkmoot.federated.model_file.writer import ModelWriter
from support.models import save_model

STRATEGIES = [
    FedAvg(),
    FedAvgM(),
    FedAdagrad(),
    FedAdam(),
    FedYogi(),
    Median(),
    TrimmedMean(trim=0.2),
    Krum(byzantine=1, keep=2),
    Clipped(clip_norm=10.0),
    FedBuff(),
    Private(clip_norm=10.0, noise_multiplier=1.0),
]
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: type(s).__name__)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A global model and six updates of 300,000 weights, as files."""
    folder, rng = tmp_path_factory.mktemp("models"), np.random.default_rng(11)
    shape = (300_001,)
    for name in ("global", "a", "b", "c", "d", "e", "f"):
        arrays = {"w": rng.standard_normal(shape, np.float32), "steps": rng.integers(0, 9, 3)}
        save_model(folder / name, arrays)
    return folder


@contextmanager
def opened(strategy, base, updates, out, memory=None):
    """A round that closes, from files to files; `updates` are ids, samples and paths."""
    with ExitStack() as stack:
        reference = stack.enter_context(ModelFile(base))
        given = [
            ModelUpdate(id, samples, stack.enter_context(ModelFile(path)), base=reference)
            for id, samples, path in updates
        ]
        layout = reference.layout
        remembered = strategy.memory_layout(layout) or layout
        writer = stack.enter_context(closing(ModelWriter(out / "next", layout)))
        kept = stack.enter_context(closing(ModelWriter(out / "memory", remembered)))
        recalled = stack.enter_context(ModelFile(memory)) if memory else None
        yield Closing(reference, given, recalled, writer, kept, b"\x01" * 32)


def combine(strategy, files, out, memory=None):
    """One round from files to files; the bytes it wrote."""
    updates = [(p, n, files / p) for n, p in enumerate("abcdef", 1)]
    with opened(strategy, files / "global", updates, out, memory) as round_:
        strategy.combine(round_)
        round_.out.commit(durable=False)
        if strategy.memory_layout(round_.reference.layout):
            round_.memory_out.commit(durable=False)
    return [path.read_bytes() for path in sorted(out.iterdir())]


@every_strategy
def test_the_same_files_give_the_same_bits_whatever_the_threads(
    strategy, files, tmp_path, monkeypatch
):
    results = []
    for threads in (1, 2, 4):
        monkeypatch.setattr(spans, "THREADS", threads)
        (tmp_path / str(threads)).mkdir()
        results.append(combine(strategy, files, tmp_path / str(threads)))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(
    "strategy", [FedAvgM(), FedAdam(), FedYogi(), FedAdagrad(), STRATEGIES[-1]]
)
def test_a_round_repeated_from_kept_memory_gives_the_same_bits(strategy, files, tmp_path):
    for name in ("first", "second", "again"):
        (tmp_path / name).mkdir()
    combine(strategy, files, tmp_path / "first")
    second = combine(strategy, files, tmp_path / "second", tmp_path / "first" / "memory")
    again = combine(strategy, files, tmp_path / "again", tmp_path / "first" / "memory")
    assert second == again


@every_strategy
def test_memory_does_not_grow_with_participants(strategy, tmp_path):
    """Forty updates need no more than four, though they are fourteen times what is allowed."""
    rng = np.random.default_rng(0)
    save_model(tmp_path / "one", {"w": rng.standard_normal(400_000, np.float32)})

    def peak(count):
        updates = [(f"{i:03}", 1, tmp_path / "one") for i in range(count)]
        with opened(strategy, tmp_path / "one", updates, tmp_path) as round_:
            tracemalloc.start()
            try:
                strategy.combine(round_)
                return tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()

    few, many = peak(4), peak(40)
    assert many < max(1.2 * few, 40_000_000)
    assert many < 40_000_000 < 40 * 1_600_000


@every_strategy
def test_a_round_without_updates_is_an_error_that_says_so(strategy):
    with pytest.raises(CombineFailed, match="no update was accepted"):
        strategy.combine(Closing(None, [], None, None, None, bytes(32)))


@every_strategy
def test_one_participant_alone_is_enough(strategy):
    base, moved = {"w": np.zeros(3, np.float32)}, {"w": np.ones(3, np.float32)}
    model = combine_arrays(strategy, base, [(moved, 4)]).model["w"]
    assert np.isfinite(model).all()
    assert (model != 0).any()
