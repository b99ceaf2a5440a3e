"""Checkpoints: whole or not at all, checked, and read by stock `transformers`."""

import itertools
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from folkmoot.core.method_config import DistroConfig
from folkmoot.core.model_config import GptConfig, HuggingFaceConfig
from folkmoot.exchange.bucket import Bucket, BucketError
from folkmoot.learning import methods
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.checkpoints.load import (
    load_model,
    load_state,
    load_tokenizer,
    load_weights,
)
from folkmoot.learning.checkpoints.manifest import CheckpointError, NotWanted
from folkmoot.learning.checkpoints.save import prune, save
from folkmoot.learning.data.tokenizer import byte_tokenizer, train_bpe
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.models import build, logits

TINY = GptConfig(vocab_size=256, layers=2, heads=2, kv_heads=1, width=32, context=32)
LLAMA = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
         "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 64}  # fmt: skip
TOKENS = np.random.default_rng(0).integers(0, 64, (4, 33))


@pytest.fixture
def store(any_bucket: Bucket) -> Bucket:
    return any_bucket


@pytest.fixture
def folder(tmp_path: Path) -> Bucket:
    return Bucket(str(tmp_path / "checkpoints"))


def same_weights(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_our_gpt_and_gives_the_same_logits(folder: Bucket, tied: bool):
    import transformers  # takes seconds, also of workers that only collect this file

    shape = {"layers": 2, "heads": 2, "width": 32, "context": 32}
    model = build(GptConfig(vocab_size=64, tie_embeddings=tied, **shape), 3, "cpu")
    save(folder, 1, model)
    theirs, info = transformers.AutoModelForCausalLM.from_pretrained(
        latest(folder), output_loading_info=True
    )
    assert type(theirs).__name__ == "LlamaForCausalLM"
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    tokens_BT = torch.from_numpy(TOKENS[:, :32])
    with torch.no_grad():
        torch.testing.assert_close(
            logits(theirs, tokens_BT), logits(model, tokens_BT), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_hugging_face_model_comes_back_bit_for_bit(folder: Bucket, kind: str, tied: bool):
    import transformers

    config = {**LLAMA, "model_type": kind, "tie_word_embeddings": tied}
    model = build(HuggingFaceConfig(config=config), 3, "cpu").eval()
    save(folder, 1, model)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(latest(folder))
    tokens_BT = torch.from_numpy(TOKENS[:, :32])
    with torch.no_grad():
        assert torch.equal(logits(theirs, tokens_BT), logits(model, tokens_BT))
        ours = load_model(latest(folder), "cpu")
        torch.testing.assert_close(
            logits(ours, tokens_BT), logits(model, tokens_BT), rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("using", [byte_tokenizer(), train_bpe(["some text " * 9], 270)])
def test_transformers_loads_the_tokenizer(folder: Bucket, using):
    import transformers

    save(folder, 1, build(TINY, 3, "cpu"), tokenizer=using)
    theirs = transformers.AutoTokenizer.from_pretrained(latest(folder))
    assert theirs.encode("some text é") == using.encode("some text é")
    assert theirs.eos_token_id == using.end
    assert load_tokenizer(latest(folder)).encode("some text") == using.encode("some text")


def test_a_checkpoint_comes_back_from_any_store(store: Bucket, tmp_path: Path):
    model = build(TINY, 3, "cpu")
    state = {"own.x": torch.arange(5, dtype=torch.int64), "shared.y": torch.ones(3, 2).bfloat16()}
    save(store, 12, model, tokenizer=byte_tokenizer(), state=state, progress={"tokens": 99})
    found = latest(store, tmp_path / "local")
    assert same_weights(load_model(found, "cpu"), model)
    assert {k: v.tolist() for k, v in load_state(found).items()} == {
        k: v.tolist() for k, v in state.items()
    }
    assert json.loads((found / "progress.json").read_text()) == {"step": 12, "tokens": 99}


@pytest.mark.parametrize(("keep", "removed"), [(1, [1, 5]), (2, [1]), (3, []), (9, [])])
def test_old_checkpoints_are_removed_but_never_the_agreed_one_or_a_newer(
    store: Bucket, tmp_path: Path, keep: int, removed: list[int]
):
    names = {step: save(store, step, build(TINY, step, "cpu")) for step in (1, 5, 20, 30)}
    store.put("step-00000002/model.safetensors", b"not finished")
    store.put("step-00000025/model.safetensors", b"not finished, and perhaps under way")
    assert prune(store, keep, newest=names[20]) == [names[step] for step in removed]
    left = {entry.key.split("/")[0] for entry in store.list()} - {"step-00000025"}
    assert left == {name for step, name in names.items() if step not in removed}
    assert latest(store, tmp_path / "l").name == names[30]
    assert prune(store, keep, newest=names[20]) == []


FILES = ["config.json", "model.safetensors", "state.safetensors", "progress.json", "manifest.json"]


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "empty", "remove"])
@pytest.mark.parametrize("file", FILES)
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(
    folder: Bucket, file: str, damage: str, caplog: pytest.LogCaptureFixture
):
    for step in (1, 2):
        save(folder, step, build(TINY, step, "cpu"), state={"x": torch.ones(3)})
    assert folder.folder is not None
    path = folder.folder / "step-00000002" / file
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    ways = {"flip": flipped, "cut": content[:-1], "grow": content + b"x", "empty": b""}
    path.unlink() if damage == "remove" else path.write_bytes(ways[damage])
    with caplog.at_level(logging.WARNING):
        found = latest(folder)
    assert found.name == "step-00000001"
    assert "step-00000002" in caplog.text
    assert same_weights(load_model(found, "cpu"), build(TINY, 1, "cpu"))


class Dies(Bucket):
    """A bucket whose writer is killed after so many objects."""

    left = 0

    def put(self, key, body, *, create=False):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        super().put(key, body, create=create)


@pytest.mark.parametrize("written", range(5))
def test_a_writer_that_dies_between_two_files_leaves_the_checkpoint_before(
    tmp_path: Path, written: int, caplog: pytest.LogCaptureFixture
):
    store = Dies(str(tmp_path / "c"))
    store.left = 5
    save(store, 1, build(TINY, 1, "cpu"), state={"x": torch.ones(3)})
    store.left = written
    with pytest.raises(KeyboardInterrupt):
        save(store, 2, build(TINY, 2, "cpu"), state={"x": torch.ones(3)})
    with caplog.at_level(logging.WARNING):
        assert latest(store).name == "step-00000001"
    assert ("step-00000002" in caplog.text) == (written > 0)


def test_writing_a_step_again_replaces_it(folder: Bucket):
    save(folder, 1, build(TINY, 1, "cpu"))
    save(folder, 1, build(TINY, 2, "cpu"))
    assert same_weights(load_model(latest(folder), "cpu"), build(TINY, 2, "cpu"))


def test_a_cancelled_save_is_no_checkpoint(store: Bucket, tmp_path: Path):
    calls: Iterator[bool] = iter([False, False, True])
    with pytest.raises(NotWanted):
        save(store, 1, build(TINY, 1, "cpu"), stopped=lambda: next(calls))
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        latest(store, tmp_path / "brought")


@pytest.mark.parametrize("chunks", [0, 2, 3])
def test_one_that_is_stopped_does_not_disturb_another_that_stores_the_same(
    store: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: int
):
    """Whatever the other one has written by then, and also when it is done."""
    model, put = build(TINY, 1, "cpu"), store.put

    def come_and_be_stopped() -> None:
        calls = itertools.count()
        with monkeypatch.context() as undisturbed:
            undisturbed.setattr(store, "put", put)
            with pytest.raises(NotWanted):
                save(store, 1, build(TINY, 1, "cpu"), stopped=lambda: next(calls) >= chunks)

    def disturbed(key: str, body: Iterator[bytes]) -> None:
        come_and_be_stopped()
        put(key, body)

    monkeypatch.setattr(store, "put", disturbed)
    save(store, 1, model)
    come_and_be_stopped()
    assert same_weights(load_model(latest(store, tmp_path / "brought"), "cpu"), model)


def test_a_full_disk_leaves_the_checkpoint_before(small_disk: Path):
    store = Bucket(str(small_disk))
    save(store, 1, build(TINY, 1, "cpu"))
    large = GptConfig(vocab_size=4096, layers=2, heads=4, width=512, context=32)
    with pytest.raises(BucketError, match="No space left"):
        save(store, 2, build(large, 1, "cpu"))
    assert latest(store).name == "step-00000001"


def test_no_checkpoint_is_an_error(store: Bucket, tmp_path: Path):
    with pytest.raises(CheckpointError, match="no usable checkpoint"):
        latest(store, tmp_path / "l")


def test_a_store_that_is_down_is_not_taken_for_a_bad_checkpoint(free_port: int, tmp_path: Path):
    options = {"endpoint": f"http://127.0.0.1:{free_port}", "region": "r",
               "access_key_id": "a", "secret_access_key": "b"}  # fmt: skip
    with pytest.raises(BucketError):
        latest(Bucket("s3://gone", options, patience=0.2), tmp_path)


def test_a_manifest_cannot_name_files_elsewhere(folder: Bucket):
    save(folder, 1, build(TINY, 1, "cpu"))
    evil = b'{"step":1,"files":{"../../x":{"size":1,"blake3":""}},"version":1}'
    folder.put("step-00000001/manifest.json", evil)
    with pytest.raises(CheckpointError):
        latest(folder)


def test_weights_of_another_model_are_refused(folder: Bucket):
    save(folder, 1, build(TINY, 1, "cpu"))
    with pytest.raises(CheckpointError, match="shape"):
        load_weights(
            build(GptConfig(layers=2, heads=2, width=64, context=32), 1, "cpu"), latest(folder)
        )
    with pytest.raises(CheckpointError, match="another model"):
        load_weights(
            build(GptConfig(layers=3, heads=2, width=32, context=32), 1, "cpu"), latest(folder)
        )


def test_our_safetensors_are_the_librarys(folder: Bucket):
    state = {"a": torch.zeros(0, 3), "b": torch.tensor(3.5), "c": torch.ones(2, 2).bool(),
             "d": torch.arange(6).view(2, 3).t(), "é": torch.ones(1).double()}  # fmt: skip
    save(folder, 1, build(TINY, 1, "cpu"), state=state)
    found = load_file(latest(folder) / "state.safetensors")
    assert set(found) == set(state)
    assert all(torch.equal(found[k], state[k]) and found[k].shape == state[k].shape for k in state)


def train(model, exchange, flight: list[bytes], first: int, last: int) -> None:
    """One client on its own; payloads in flight are kept as a client would keep them."""
    for step in range(first, last):
        made = exchange.contribute(lambda _: loss_and_gradients(model, TOKENS), step, 1e-2)
        flight.append(made.payload)
        if len(flight) > exchange.delay:
            exchange.apply([flight.pop(0)], step - exchange.delay, 1e-2)


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_training_resumed_from_a_checkpoint_ends_in_the_same_bits(folder: Bucket, stop: int):
    whole = build(TINY, 3, "cpu")
    train(whole, methods.build(whole, DistroConfig(k=4)), [], 0, 9)
    first = build(TINY, 3, "cpu")
    exchange, flight = methods.build(first, DistroConfig(k=4)), []
    train(first, exchange, flight, 0, stop)
    waiting = {f"flight.{n}": torch.frombuffer(bytearray(p), dtype=torch.uint8)
               for n, p in enumerate(flight)}  # fmt: skip
    save(folder, stop, first, state={**exchange.state_dict(), **waiting})

    found = latest(folder)
    again = build(TINY, 99, "cpu")
    exchange = methods.build(again, DistroConfig(k=4))
    load_weights(again, found)
    state = load_state(found)
    flight = [state.pop(name).numpy().tobytes() for name in sorted(waiting)]
    exchange.load_state_dict(state)
    train(again, exchange, flight, stop, 9)
    assert same_weights(again, whole)


def test_a_broken_weights_file_is_named(folder: Bucket):
    save(folder, 1, build(TINY, 1, "cpu"))
    found = latest(folder)
    os.truncate(found / "model.safetensors", 100)
    with pytest.raises(CheckpointError, match=r"model\.safetensors: cannot be read"):
        load_model(found, "cpu")
