"""Models of PyTorch and scikit-learn as named arrays, and back.

Nothing here imports either: the arrays are taken from the objects you pass.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from folkmoot.federated.model_file.layout import Array


def from_torch(module: Any) -> dict[str, Array]:
    """The state dict of a module: parameters and buffers, copied to numpy."""
    return {
        name: tensor.detach().cpu().numpy().copy() for name, tensor in module.state_dict().items()
    }


def to_torch(module: Any, weights: Mapping[str, Array]) -> None:
    """Load named arrays into a module; names and shapes must fit."""
    own = module.state_dict()
    # The arrays are read-only maps of a file; a tensor may be written to, so it gets a copy.
    tensors = {
        name: own[name].new_tensor(np.array(array)) if name in own else array
        for name, array in weights.items()
    }
    module.load_state_dict(tensors)


LINEAR = ("coef_", "intercept_")


def from_sklearn(estimator: Any, attributes: Sequence[str] = LINEAR) -> dict[str, Array]:
    """The fitted arrays of an estimator; a list of arrays (an MLP's layers) is numbered."""
    weights: dict[str, Array] = {}
    for attribute in attributes:
        value = getattr(estimator, attribute)
        if isinstance(value, list | tuple):
            weights |= {f"{attribute}.{i}": np.array(layer) for i, layer in enumerate(value)}
        else:
            weights[attribute] = np.array(value)
    return weights


def to_sklearn(
    estimator: Any, weights: Mapping[str, Array], attributes: Sequence[str] = LINEAR
) -> None:
    """Put named arrays into an estimator, as `from_sklearn` took them out."""
    for attribute in attributes:
        if attribute in weights:
            setattr(estimator, attribute, np.array(weights[attribute]))
            continue
        layers = [name for name in weights if name.startswith(f"{attribute}.")]
        layers.sort(key=lambda name: int(name.rpartition(".")[2]))
        setattr(estimator, attribute, [np.array(weights[name]) for name in layers])
