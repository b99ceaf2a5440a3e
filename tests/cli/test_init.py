"""`folkmoot init`: the template that new runs begin with."""

from pathlib import Path

from folkmoot.authority.solana import subset
from folkmoot.cli.init import TEMPLATE
from folkmoot.core.coordinator import decode_run
from folkmoot.core.model_config import GptConfig
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.methods.distro import wire
from folkmoot.learning.methods.distro.plan import make_plan
from folkmoot.learning.models import build
from folkmoot.runs.config import load_run
from support.commands import folkmoot


def payload(architecture: GptConfig) -> int:
    shapes = [
        (name, tuple(p.shape)) for name, p in build(architecture, 0, "cpu").named_parameters()
    ]
    return wire.payload_size(make_plan(shapes, 64, 32, 1))


def test_its_vocabulary_is_that_of_bytes_and_cuts_into_whole_blocks() -> None:
    architecture = decode_run(TEMPLATE).model.architecture
    assert isinstance(architecture, GptConfig)
    assert architecture.vocab_size == byte_tokenizer().vocab_size
    parameters = sum(p.numel() for p in build(architecture, 0, "cpu").parameters())
    assert payload(architecture) * 8 <= parameters / 4096 * 32 * (12 + 1) * 1.05, (
        "32 coefficients of each 4,096, each a place and a sign"
    )


def test_new_runs_do_not_learn_from_liars() -> None:
    config = decode_run(TEMPLATE).config
    assert config.screening
    assert config.verification_percent


def test_it_writes_a_run_that_solana_can_keep(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    assert "--authority solana" in folkmoot("init", file, "--authority", "solana").output
    subset.check(subset.fitted(load_run(file)))
    assert folkmoot("init", tmp_path / "other.toml", "--authority", "moon").exit_code == 1
