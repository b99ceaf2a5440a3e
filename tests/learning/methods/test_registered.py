"""A method of the user's own, chosen by name in a run's configuration."""

from typing import Any

import pytest
import torch

from folkmoot.core.config import decode
from folkmoot.core.coordinator import Run, decode_run
from folkmoot.core.method_config import CustomConfig
from folkmoot.learning.methods import build, register_method

CUSTOM = """
run_id = "own"
[config]
total_steps = 1
delay = 2
[model.method]
type = "custom"
name = "own"
settings = { scale = 0.5, rounds = 3, kind = "sign", on = true }
"""


def test_it_is_built_with_the_settings_of_the_run() -> None:
    built: list[Any] = []

    def make(module: torch.nn.Module, **settings: Any) -> Any:
        built.append((module, settings))
        return "method"

    register_method("own", make)
    module = torch.nn.Linear(1, 1)
    assert build(module, decode_run(CUSTOM).model.method) == "method"
    assert built == [(module, {"scale": 0.5, "rounds": 3, "kind": "sign", "on": True})]


def test_a_name_that_is_not_registered_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"'another', which is not registered here: import"):
        build(torch.nn.Linear(1, 1), CustomConfig(name="another"))


def test_its_settings_are_plain_values() -> None:
    with pytest.raises(ValueError, match="settings"):
        decode(CUSTOM.replace("0.5", "[1]"), Run, "run.toml")
