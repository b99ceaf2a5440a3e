"""A model that a run trained: from a member's memory, or from a checkpoint."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from torch import nn

from folkmoot.exchange.bucket import open_checkpoints
from folkmoot.learning import generate
from folkmoot.learning.checkpoints.fetch import latest
from folkmoot.learning.checkpoints.load import load_model, load_tokenizer
from folkmoot.learning.data.tokenizer import Tokenizer


class TrainedModel(NamedTuple):
    model: nn.Module
    tokenizer: Tokenizer | None  # what came with it

    def generate(
        self,
        prompt: str,
        tokens: int = 200,
        *,
        temperature: float = 0.8,
        top_k: int = 0,
        seed: int = 0,
    ) -> Iterator[str]:
        """Text that goes on from `prompt`, piece by piece; temperature 0 takes the likeliest."""
        if self.tokenizer is None:
            raise ValueError("the model has no tokenizer: name one in the run's [model] table")
        start = self.tokenizer.encode(prompt)
        made = generate.tokens(
            self.model, start, tokens, temperature=temperature, top_k=top_k, seed=seed
        )
        return generate.text(self.tokenizer, made)


def load_checkpoint(place: str | os.PathLike[str], device: str | None = None) -> TrainedModel:
    """The model at `place`: a model's folder, or a folder or bucket url of checkpoints.

    Of several checkpoints, the newest whose files are what they were when it was stored.
    """
    with tempfile.TemporaryDirectory(prefix="folkmoot-") as scratch:
        folder = _find(os.fspath(place), Path(scratch))
        known = (folder / "tokenizer.json").is_file()
        tokenizer = load_tokenizer(folder) if known else None
        return TrainedModel(load_model(folder, device).eval(), tokenizer)


def _find(place: str, scratch: Path) -> Path:
    folder = Path(place)
    if "://" not in place:
        if not folder.is_dir():
            raise ValueError(f"{place}: there is no such folder")
        if (folder / "config.json").is_file():
            return folder
    return latest(open_checkpoints(place), scratch)
