"""Exchange methods: how members combine what they learn. `protocol` has their promises."""

from collections.abc import Callable

import torch

from folkmoot.core.method_config import (
    CustomConfig,
    DenseConfig,
    DiLoCoConfig,
    DistroConfig,
    MethodConfig,
    SparseLoCoConfig,
)
from folkmoot.learning.methods.protocol import Method

__all__ = ["Method", "build", "register_method"]

_registered: dict[str, Callable[..., Method]] = {}


def register_method(name: str, build: Callable[..., Method]) -> None:
    """Offer a method to runs whose `[model.method]` is of type "custom" and has this name.

    `build` is called with the torch module and the `settings` of that table. A run can only choose
    among what its members registered themselves, so no run brings code to a machine.
    """
    _registered[name] = build


def build(module: torch.nn.Module, config: MethodConfig) -> Method:
    """The method that `config` describes, on `module`."""
    match config:
        case DistroConfig():
            from folkmoot.learning.methods.distro import DistroMethod

            return DistroMethod(module, config)
        case DenseConfig():
            from folkmoot.learning.methods.dense import DenseMethod

            return DenseMethod(module, config)
        case DiLoCoConfig():
            from folkmoot.learning.methods.diloco import DiLoCoMethod

            return DiLoCoMethod(module, config)
        case SparseLoCoConfig():
            from folkmoot.learning.methods.sparseloco import SparseLoCoMethod

            return SparseLoCoMethod(module, config)
        case CustomConfig():
            if config.name not in _registered:
                raise ValueError(
                    f"the run's method is '{config.name}', which is not registered here: import"
                    " the code that calls folkmoot.register_method before joining"
                )
            return _registered[config.name](module, **config.settings)
