"""Models of PyTorch and scikit-learn as named arrays, and back.

Nothing here imports either: the arrays are taken from the objects you pass.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from folkmoot.federated.model_file.layout import Array


def from_torch(module: Any, *, trainable: bool = False) -> dict[str, Array]:
    """The state dict of a module: parameters and buffers, copied to numpy.

    With `trainable`, only parameters that require a gradient: of a model with LoRA adapters (PEFT)
    the adapters alone. What numpy does not have, bfloat16, becomes float32, which holds it exactly.
    """
    tensors = dict(module.named_parameters()) if trainable else module.state_dict()
    return {
        name: _plain(tensor.detach()).cpu().numpy().copy()
        for name, tensor in tensors.items()
        if not trainable or tensor.requires_grad
    }


def _plain(tensor: Any) -> Any:
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def to_torch(module: Any, weights: Mapping[str, Array], *, trainable: bool = False) -> None:
    """Load named arrays into a module; names and shapes must fit.

    With `trainable`, `weights` are what `from_torch` gives with it, and the rest stays as it is.
    """
    own = module.state_dict()
    if trainable:
        wanted = {name for name, one in module.named_parameters() if one.requires_grad}
        if odd := sorted(wanted ^ set(weights)):
            raise ValueError(f"the weights and what the module trains differ in {odd[:3]}")
    # The arrays are read-only maps of a file; a tensor may be written to, so it gets a copy.
    tensors = {
        name: own[name].new_tensor(np.array(array)) if name in own else array
        for name, array in weights.items()
    }
    module.load_state_dict(tensors, strict=not trainable)


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
