"""The structs of a run's config: strict, tagged, and refusing what cannot work."""

import msgspec
import pytest

from folkmoot.core.data_config import DataConfig, MixtureConfig
from folkmoot.core.model_config import ArchitectureConfig, GptConfig, HuggingFaceConfig


def test_a_model_is_chosen_by_its_type():
    assert msgspec.toml.decode('type = "gpt"\nwidth = 64', type=ArchitectureConfig) == GptConfig(
        width=64
    )
    hf = msgspec.toml.decode('type = "hf"\n[config]\nmodel_type = "llama"', type=ArchitectureConfig)
    assert hf == HuggingFaceConfig(config={"model_type": "llama"})


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('type = "gpt"\nwidht = 64', "widht"),
        ('type = "gpt"\nlayers = 0', ">= 1"),
        ('type = "gpt"\nwidth = 100\nheads = 3', "heads"),
        ('type = "gpt"\nheads = 4\nkv_heads = 3', "kv_heads"),
        ('type = "hf"', "exactly one"),
        ('type = "hf"\n[config]\nhidden_size = 8', "model_type"),
        ('type = "resnet"', "resnet"),
    ],
)
def test_a_model_that_cannot_be_built_is_refused_with_the_reason(text: str, what: str):
    with pytest.raises(msgspec.ValidationError, match=what):
        msgspec.toml.decode(text, type=ArchitectureConfig)


def test_a_mixture_of_sources_reads_from_toml():
    text = """
    sequence_length = 128
    [source]
    type = "mixture"
    [[source.parts]]
    weight = 3
    source = {type = "tokens", paths = ["a.bin"]}
    [[source.parts]]
    weight = 1
    source = {type = "remote", urls = ["https://example.org/b.bin"], dtype = "uint32"}
    """
    data = msgspec.toml.decode(text, type=DataConfig)
    assert isinstance(data.source, MixtureConfig)
    assert [part.weight for part in data.source.parts] == [3.0, 1.0]
    assert not data.wrap


def test_the_feed_forward_width_is_eight_thirds_rounded_up():
    assert GptConfig(width=256).feed_forward_width == 704
    assert GptConfig(width=384).feed_forward_width == 1024
    assert GptConfig(width=256, hidden=100).feed_forward_width == 100
