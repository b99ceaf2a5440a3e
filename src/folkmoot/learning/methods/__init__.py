"""Exchange methods: how members combine what they learn. `protocol` has their promises."""

import torch

from folkmoot.core.method_config import (
    DenseConfig,
    DiLoCoConfig,
    DistroConfig,
    MethodConfig,
    SparseLoCoConfig,
)
from folkmoot.learning.methods.protocol import Method

__all__ = ["Method", "build"]


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
