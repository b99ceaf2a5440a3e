"""FedProx (Li et al. 2020), the participant's side: a spring to the global model.

The server averages as in FedAvg. A participant adds μ/2 · ‖w − w_global‖² to its loss, or the
gradient of it to its gradients; both are here, for any framework that can show its weights to
numpy.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from folkmoot.federated.model_file.layout import Array


def proximal_loss(
    weights: Mapping[str, Array], global_weights: Mapping[str, Array], mu: float
) -> float:
    """μ/2 · ‖w − w_global‖² over all arrays."""
    total = 0.0
    for name, anchor in global_weights.items():
        step = np.subtract(weights[name], anchor, dtype=np.float64)
        total += float(np.vdot(step, step))
    return mu / 2 * total


def add_proximal_gradient(
    gradients: Mapping[str, Array],
    weights: Mapping[str, Array],
    global_weights: Mapping[str, Array],
    mu: float,
) -> None:
    """gradients += μ · (w − w_global), in place."""
    for name, gradient in gradients.items():
        gradient += mu * (weights[name] - global_weights[name])
