"""The model of one client and all that is done with it. Used by one thread; knows no network.

The hash of a model covers all that a checkpoint stores: its parameters, its persistent buffers and
the shared state of its method, since these must be equal on all clients. It is made of leaves by
name, so that a joiner can check each as it arrives.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import torch

from folkmoot.core.coordinator import Run
from folkmoot.core.coordinator.assignment import Share, Span, numbers, total
from folkmoot.core.coordinator.state import STORED_ROUNDS
from folkmoot.core.data_config import DataConfig, SourceConfig
from folkmoot.core.method_config import DistroConfig
from folkmoot.learning import methods
from folkmoot.learning.checkpoints import state_hash
from folkmoot.learning.checkpoints.leaf_hash import root_hash
from folkmoot.learning.checkpoints.load import load_state, load_weights
from folkmoot.learning.checkpoints.manifest import ObjectStore
from folkmoot.learning.checkpoints.safetensors_file import untied
from folkmoot.learning.checkpoints.save import save
from folkmoot.learning.data import OpenUrl, Samples, open_data
from folkmoot.learning.data.tokenizer import load as load_tokenizer
from folkmoot.learning.evaluate import Evaluation, Score
from folkmoot.learning.gradients import loss_and_gradients
from folkmoot.learning.models import build
from folkmoot.learning.trial import passes

SHARED = "shared."


class Cancelled(Exception):
    """Training was given up; the model is as it was."""


class ModelCopy(NamedTuple):
    """A model, and the shared state of its method."""

    model: torch.nn.Module
    state: Mapping[str, torch.Tensor]


class Worked(NamedTuple):
    payload: bytes
    loss: float
    tokens_per_second: int


class Learner:
    """Build one for a run; then `initialise`, `restore` or `adopt` a model before anything else."""

    def __init__(self, run: Run, open_url: OpenUrl | None = None) -> None:
        if run.model.data is None:
            raise ValueError("the run names no data: add [model.data] to its run.toml")
        self.run = run
        self.vocabulary = getattr(run.model.architecture, "vocab_size", 0)
        self._open_url = open_url
        self.data = self._samples(run.model.data, wrap=True, shuffle=True)
        held_out = run.model.held_out
        self.held_out = self._samples(held_out, wrap=False, shuffle=False) if held_out else None
        name = run.model.tokenizer or getattr(run.model.data, "tokenizer", "")
        self.tokenizer = load_tokenizer(name) if name else None
        self.initialise()

    def _samples(self, source: SourceConfig, wrap: bool, shuffle: bool) -> Samples:
        data = DataConfig(source, self.run.model.max_seq_len, shuffle=shuffle, wrap=wrap)
        return open_data(data, self.run.model.seed, self.vocabulary, self._open_url)

    def rehearse(self) -> None:
        """Train and learn once, on a model that is thrown away: compiles what needs compiling."""
        stored = {n: b for n, b in self.model.named_buffers() if n in self.parts()}
        before = {name: buffer.clone() for name, buffer in stored.items()}
        worked = self.train(0, (Span(0, 1),), lambda: False)
        for name, buffer in stored.items():
            if not torch.equal(before[name], buffer):
                raise ValueError(
                    f"the model's {name} changes while a share is trained (batch norm does that):"
                    " clients would not stay equal; use a model without such state"
                )
        self.method.sketch(worked.payload)
        self.learn([worked.payload], 0)
        self.initialise()

    # Getting a model.

    def initialise(self) -> None:
        """The model that everyone makes from the run's seed."""
        config = self.run.model.method
        if isinstance(config, DistroConfig):
            config = msgspec.structs.replace(config, delay=self.run.config.delay)
        self.model = build(self.run.model.architecture, self.run.model.seed, "cpu")
        self.method = methods.build(self.model, config)
        if self.method.delay != self.run.config.delay:
            raise ValueError(
                f"the method's delay is {self.method.delay}, the run's {self.run.config.delay}:"
                " set delay in the run's [config] to the method's"
            )
        self._model_bytes = sum(self.part_sizes().values())

    def restore(self, folder: Path) -> None:
        """The model of a checkpoint, with the method's shared state."""
        self.initialise()
        load_weights(self.model, folder)
        state = load_state(folder)
        if state:
            self.method.load_state_dict(_shared(state))

    def adopt(self, parts: Mapping[str, bytes]) -> None:
        """The model whose parts came from peers."""
        self.initialise()
        with torch.no_grad():
            for name, tensor in untied(self.model).items():
                tensor.copy_(_tensor(parts[name], tensor))
        shared = _shared(self.method.state_dict())
        if shared:
            self.method.load_state_dict({n: _tensor(parts[n], t) for n, t in shared.items()})

    def take_over(self, other: "Learner") -> bool:
        """The model that another learner holds, if it is made of the same parts."""
        if other.part_sizes() != self.part_sizes():
            return False
        self.adopt({name: _bytes(part) for name, part in other.parts().items()})
        return True

    # Showing it.

    def parts(self) -> dict[str, torch.Tensor]:
        """Everything that must be equal on all clients, by name."""
        return {**untied(self.model), **_shared(self.method.state_dict())}

    def part_sizes(self) -> dict[str, int]:
        return {name: part.numel() * part.element_size() for name, part in self.parts().items()}

    def leaf_hashes(self) -> dict[str, bytes]:
        return {name: state_hash.leaf_hash(name, part) for name, part in self.parts().items()}

    def hash(self) -> bytes:
        return root_hash(self.leaf_hashes())

    def shared_parts(self) -> list[tuple[str, bytes, bytes]]:
        """(name, leaf, bytes) of a copy that peers may fetch while we go on."""
        parts = self.parts().items()
        return [(name, state_hash.leaf_hash(name, part), _bytes(part)) for name, part in parts]

    def fits(self, name: str, data: bytes, leaves: Mapping[str, bytes]) -> bool:
        """Whether `data` is the part that `leaves` promise under `name`."""
        part = self.parts().get(name)
        if part is None or len(data) != part.numel() * part.element_size():
            return False
        return state_hash.leaf_hash(name, _tensor(data, part)) == leaves.get(name)

    # Learning.

    def train(self, step: int, share: Share, stopped: Callable[[], bool]) -> Worked:
        """Train a share; what peers need of it comes back. The model stays as it was."""
        ids = numbers(share)
        parts = [p for p in np.array_split(ids, min(self.method.local_steps, len(ids))) if len(p)]

        def closure(i: int) -> float:
            if stopped():
                raise Cancelled
            tokens = self.data.samples(parts[i % len(parts)].tolist())
            settings = self.run.model
            return loss_and_gradients(self.model, tokens, settings.micro_batch, settings.precision)

        began = time.perf_counter()
        done = self.method.contribute(closure, step, self.run.model.lr.lr(step))
        seconds = time.perf_counter() - began
        tokens = total(share) * self.run.model.max_seq_len
        return Worked(done.payload, done.loss, round(tokens / max(seconds, 1e-3)))

    def learn(self, payloads: Sequence[bytes], step: int, samples: Sequence[int] = ()) -> bytes:
        """Take in what everyone sent for `step`, in this order, and from how many samples each;
        the hash of the new model."""
        self.method.apply(payloads, step, self.run.model.lr.lr(step), samples)
        return self.hash()

    def room(self, clients: int) -> int:
        """Bytes that a client of a run of so many keeps for peers, at most.

        The results of the rounds that the state tells of, and two copies of the model: one that
        newcomers fetch, and its successor.
        """
        results = self.method.payload_size * clients * STORED_ROUNDS
        return results + 2 * self._model_bytes + (1 << 20)

    def evaluate(self, sequences: int, stopped: Callable[[], bool]) -> Score | None:
        """Held-out loss over the first sequences; None without held-out data, or when stopped."""
        if self.held_out is None:
            return None
        scoring = Evaluation(self.model, self.held_out, sequences, self.run.model.precision)
        for _ in scoring.slices():
            if stopped():
                return None
        return scoring.score

    def audit(self, payload: bytes, others: Sequence[bytes], samples: Share) -> bool | None:
        """Whether a result does more for these samples than others' results do; None where the
        method has no way to tell. The model stays as it was."""
        along = self.method.contrast(payload, others)
        if along is None:
            return None
        tokens = self.data.samples(numbers(samples))
        return passes(self.model, along, tokens, self.run.model.precision)

    # Keeping it.

    def copy(self) -> ModelCopy:
        """What a checkpoint stores of the model as it is now."""
        state = _shared(self.method.state_dict())
        return ModelCopy(deepcopy(self.model), {n: t.clone() for n, t in state.items()})

    def save(self, store: ObjectStore, step: int, stopped: Callable[[], bool]) -> str:
        """Store the model, whole; the checkpoint's name.

        May run in another thread as long as the model neither trains nor learns; once it does,
        `stopped` must be true. It is asked before every chunk, and after the last one of the model.
        """
        held = ModelCopy(self.model, _shared(self.method.state_dict()))
        return self.save_copy(held, store, step, stopped)

    def save_copy(
        self, copy: ModelCopy, store: ObjectStore, step: int, stopped: Callable[[], bool]
    ) -> str:
        """The same with what `copy` gave; whatever the model does meanwhile."""
        model, state = copy
        return save(store, step, model, tokenizer=self.tokenizer, state=state, stopped=stopped)


def _shared(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in state.items() if name.startswith(SHARED)}


def _bytes(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _tensor(data: bytes, like: torch.Tensor) -> torch.Tensor:
    flat = torch.frombuffer(bytearray(data), dtype=like.dtype)
    return flat.reshape(like.shape)
