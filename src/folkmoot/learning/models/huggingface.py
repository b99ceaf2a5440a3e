"""Any causal language model of `transformers`, from a config or from a folder on disk.

Nothing is downloaded: a path must be a folder. Code that ships inside a model folder is
never run (`trust_remote_code` stays off).
"""

import os
from pathlib import Path

import torch
from torch import nn

from folkmoot.core.model_config import HuggingFaceConfig
from folkmoot.learning.models.initial import initialise


def build(config: HuggingFaceConfig, seed: int) -> nn.Module:
    try:
        import transformers
    except ImportError as missing:
        raise ValueError(
            'a model of type "hf" needs transformers; install it with: pip install "folkmoot[hf]"'
        ) from missing
    if config.path:
        return _from_folder(Path(config.path))
    options = dict(config.config)
    kind = str(options.pop("model_type"))
    try:
        shape = transformers.AutoConfig.for_model(kind, **options)
        with torch.random.fork_rng(devices=[]):
            model = transformers.AutoModelForCausalLM.from_config(shape, dtype=torch.float32)
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(f'transformers cannot build a "{kind}" model: {error}') from error
    initialise(model, seed, std=float(getattr(shape, "initializer_range", 0.02)))
    return model


def _from_folder(folder: Path) -> nn.Module:
    import transformers

    if not (folder / "config.json").is_file():
        raise ValueError(
            f"{folder} is not a model folder (no config.json); download the model first, for"
            " example with: hf download NAME --local-dir FOLDER"
        )
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, use_safetensors=True
    )
