"""Exchange methods: how members combine what they learn. `protocol` has their promises."""

import torch

from folkmoot.core.method_config import Dense, DiLoCo, Distro, Recipe, SparseLoCo
from folkmoot.learning.methods.protocol import Method

__all__ = ["Method", "build"]


def build(module: torch.nn.Module, recipe: Recipe) -> Method:
    """The method that carries out `recipe` on `module`."""
    match recipe:
        case Distro():
            from folkmoot.learning.methods.distro import DistroMethod

            return DistroMethod(module, recipe)
        case Dense():
            from folkmoot.learning.methods.dense import DenseMethod

            return DenseMethod(module, recipe)
        case DiLoCo():
            from folkmoot.learning.methods.diloco import DiLoCoMethod

            return DiLoCoMethod(module, recipe)
        case SparseLoCo():
            from folkmoot.learning.methods.sparseloco import SparseLoCoMethod

            return SparseLoCoMethod(module, recipe)
