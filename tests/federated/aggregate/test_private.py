"""Differential privacy: the noise is what the accountant is told, and the ε is right."""

import math
from statistics import NormalDist

import numpy as np
import pytest

from folkmoot.federated.aggregate import accountant
from folkmoot.federated.aggregate.in_memory import combine_arrays
from folkmoot.federated.aggregate.noise import Noise
from folkmoot.federated.aggregate.private import Private
from folkmoot.federated.aggregate.spans import ArraySpan
from folkmoot.federated.model_file.layout import ArrayMeta

SIZE = 200_000


def zeros(count):
    return [({"w": np.zeros(SIZE, np.float32)}, 1) for _ in range(count)]


def test_the_noise_on_the_mean_is_normal_with_the_promised_deviation():
    from scipy import stats  # takes seconds, also of workers that only collect this file

    strategy = Private(clip_norm=3.0, noise_multiplier=2.0)
    base = {"w": np.zeros(SIZE, np.float32)}
    model = combine_arrays(strategy, base, zeros(4), seed=b"s" * 32).model["w"]
    assert stats.kstest(model / (2.0 * 3.0 / 4), "norm").pvalue > 1e-3


def test_noise_differs_between_seeds_arrays_and_neighbouring_blocks():
    meta = ArrayMeta("F32", (SIZE,))
    first = Noise(b"a" * 32)(ArraySpan("w", meta, 0, 1001)).copy()
    others = [
        Noise(b"b" * 32)(ArraySpan("w", meta, 0, 1001)),
        Noise(b"a" * 32)(ArraySpan("v", meta, 0, 1001)),
        Noise(b"a" * 32)(ArraySpan("w", meta, 65536, 1001)),
    ]
    for other in others:
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.15
    assert np.array_equal(first, Noise(b"a" * 32)(ArraySpan("w", meta, 0, 1001)))


def test_no_participant_moves_the_mean_by_more_than_its_share_of_the_clip():
    strategy = Private(clip_norm=1.0, noise_multiplier=1e-9)
    base = {"w": np.zeros(2, np.float32), "n": np.array([7])}
    liar = {"w": np.float32([1e20, 0.0]), "n": np.array([10**9])}
    honest = {"w": np.float32([0.0, 0.5]), "n": np.array([8])}
    model = combine_arrays(strategy, base, [(honest, 1), (liar, 10**6)]).model
    assert np.allclose(model["w"], [0.5, 0.25], atol=1e-6)
    assert model["n"] == [7], "integers carry no noise, so they must carry no data"


def test_epsilon_grows_with_rounds_and_survives_a_restart():
    strategy = Private(clip_norm=1.0, noise_multiplier=1.0, delta=1e-6)
    base, memory, spent = {"w": np.zeros(3, np.float32)}, None, []
    for _ in range(3):
        combined = combine_arrays(strategy, base, [(base, 1)] * 5, memory)
        memory = combined.memory
        spent.append(combined.figures["epsilon"])
    assert spent == [accountant.epsilon(1.0, rounds, 1e-6) for rounds in (1, 2, 3)]
    assert spent[0] < spent[1] < spent[2] == strategy.forecast(3)


def test_the_owner_is_told_epsilon_for_the_delta_asked():
    said = Private(clip_norm=1.0, noise_multiplier=4.0, delta=1e-6).promise(10)
    assert f"epsilon {accountant.epsilon(4.0, 10, 1e-6):.2f} for delta 1e-06" in said


def exact_delta(epsilon, mu):
    """The Gaussian mechanism's δ(ε) in closed form (Balle and Wang 2018)."""
    cdf = NormalDist().cdf
    return cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(("noise", "rounds"), [(0.7, 1), (1.0, 10), (4.0, 100)])
def test_the_accountant_never_promises_more_than_the_exact_bound(noise, rounds):
    epsilon = accountant.epsilon(noise, rounds, 1e-5)
    mu = math.sqrt(rounds) / noise
    assert exact_delta(epsilon, mu) <= 1e-5
    assert exact_delta(0.85 * epsilon, mu) > 1e-5, "and is not needlessly loose"


def test_without_the_accountant_the_strategy_says_what_to_install(monkeypatch):
    monkeypatch.setattr("folkmoot.federated.aggregate.private.installed", lambda: False)
    with pytest.raises(ValueError, match=r"pip install folkmoot\[dp\]"):
        Private(clip_norm=1.0, noise_multiplier=1.0)
