"""`folkmoot init`: the template that new runs begin with."""

from folkmoot.cli.init import TEMPLATE
from folkmoot.core.coordinator import decode_run
from folkmoot.core.model_config import GptConfig
from folkmoot.learning.data.tokenizer import byte_tokenizer
from folkmoot.learning.methods.distro import wire
from folkmoot.learning.methods.distro.plan import make_plan
from folkmoot.learning.models import build


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
