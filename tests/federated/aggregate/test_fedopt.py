"""Server optimizers against their papers' formulas, and across a restart."""

import msgspec
import numpy as np
import pytest

from folkmoot.federated.aggregate.fedopt import FedAdagrad, FedAdam, FedAvgM, FedYogi
from folkmoot.federated.aggregate.in_memory import combine_arrays

OPTIMIZERS = [FedAvgM(), FedAdagrad(), FedAdam(), FedYogi()]


def rounds(strategy, count, *, keep_memory=True):
    """Models of `count` rounds in which two participants pull towards fixed targets."""
    rng = np.random.default_rng(3)
    model = {"w": rng.standard_normal(50, np.float32), "n": np.array([4, 5])}
    targets = rng.standard_normal((2, 50)).astype(np.float32)
    memory, history = None, []
    for _ in range(count):
        given = [
            ({"w": (model["w"] + t) / 2, "n": model["n"] + 1}, n)
            for t, n in zip(targets, (1, 3), strict=True)
        ]
        combined = combine_arrays(strategy, model, given, memory)
        model = combined.model
        memory = combined.memory if keep_memory else None
        history.append((model, given))
    return history


def slow(strategy, reference, given, m, v):
    """The paper, in float64."""
    x = reference.astype(float)
    delta = sum(n * arrays["w"].astype(float) for arrays, n in given) / 4 - x
    if isinstance(strategy, FedAvgM):
        m = strategy.momentum * m + delta
        return x + strategy.learning_rate * m, m, v
    m = strategy.beta_1 * m + (1 - strategy.beta_1) * delta
    if isinstance(strategy, FedAdagrad):
        v = v + delta**2
    elif isinstance(strategy, FedAdam):
        v = strategy.beta_2 * v + (1 - strategy.beta_2) * delta**2
    else:
        v = v - (1 - strategy.beta_2) * delta**2 * np.sign(v - delta**2)
    return x + strategy.learning_rate * m / (np.sqrt(v) + strategy.tau), m, v


@pytest.mark.parametrize("strategy", OPTIMIZERS, ids=lambda s: type(s).__name__)
def test_ten_rounds_follow_the_paper(strategy):
    rng = np.random.default_rng(3)
    reference = rng.standard_normal(50, np.float32)
    m, v = np.zeros(50), np.full(50, getattr(strategy, "tau", 0) ** 2)
    for model, given in rounds(strategy, 10):
        expected, m, v = slow(strategy, reference, given, m, v)
        assert np.allclose(model["w"], expected, rtol=1e-5, atol=1e-5)
        reference = model["w"]
    assert list(model["n"]) == [14, 15], "integers take the mean"


@pytest.mark.parametrize("strategy", OPTIMIZERS, ids=lambda s: type(s).__name__)
def test_the_memory_matters(strategy):
    with_memory, without = rounds(strategy, 3), rounds(strategy, 3, keep_memory=False)
    assert not np.array_equal(with_memory[-1][0]["w"], without[-1][0]["w"])


def test_the_initial_round_is_the_plain_mean_and_starts_the_memory():
    pairs = [({"w": np.float32([1.0])}, 0), ({"w": np.float32([3.0])}, 0)]
    combined = combine_arrays(FedAdam(tau=0.5), None, pairs)
    assert combined.model["w"] == [2.0]
    assert combined.memory == {"m/w": [0.0], "v/w": [0.25]}


def test_moments_of_half_precision_are_kept_in_single():
    strategy = FedAdam()
    combined = combine_arrays(strategy, {"w": np.float16([1])}, [({"w": np.float16([1.001])}, 1)])
    assert {array.dtype for array in combined.memory.values()} == {np.dtype("f4")}


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ({"strategy": "fedadam", "beta_2": 1.0}, "beta_2"),
        ({"strategy": "fedavgm", "momentum": -0.1}, "momentum"),
        ({"strategy": "fedyogi", "tau": 0.0}, "tau"),
        ({"strategy": "fedadagrad", "learning_rate": 0.0}, "learning_rate"),
        ({"strategy": "krum", "byzantine": -1}, "byzantine"),
        ({"strategy": "trimmed_mean", "trim": 0.5}, "trim"),
        ({"strategy": "clipped", "clip_norm": 0}, "clip_norm"),
        ({"strategy": "fedbuff", "learning_rate": 0}, "learning_rate"),
        ({"strategy": "private", "clip_norm": 1, "noise_multiplier": 0}, "noise_multiplier"),
        ({"strategy": "fedavg", "momentum": 0.9}, "momentum"),
        ({"strategy": "fedsgd"}, "fedsgd"),
    ],
)
def test_a_wrong_option_is_refused_with_its_name(table, word):
    from folkmoot.federated.aggregate.strategies import AnyStrategy

    with pytest.raises(msgspec.ValidationError, match=word):
        msgspec.convert(table, AnyStrategy)
