"""The spring of FedProx pulls towards the global model, by the gradient of its loss."""

import numpy as np

from folkmoot.federated.aggregate.fedprox import add_proximal_gradient, proximal_loss


def test_the_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(1)
    weights, anchor = {"w": rng.standard_normal(4)}, {"w": rng.standard_normal(4)}
    gradients = {"w": np.zeros(4)}
    add_proximal_gradient(gradients, weights, anchor, mu=0.3)
    for index in range(4):
        up, down = weights["w"].copy(), weights["w"].copy()
        up[index] += 1e-6
        down[index] -= 1e-6
        slope = (
            proximal_loss({"w": up}, anchor, 0.3) - proximal_loss({"w": down}, anchor, 0.3)
        ) / 2e-6
        assert np.isclose(gradients["w"][index], slope, atol=1e-6)


def test_a_strong_spring_keeps_local_training_near_the_global_model():
    """Gradient descent on (w − 10)²/2 with μ = 9 settles at a tenth of the way."""
    anchor = {"w": np.zeros(1)}
    weights = {"w": np.zeros(1)}
    for _ in range(500):
        gradients = {"w": weights["w"] - 10}
        add_proximal_gradient(gradients, weights, anchor, mu=9)
        weights["w"] -= 0.05 * gradients["w"]
    assert np.isclose(weights["w"][0], 1.0)
