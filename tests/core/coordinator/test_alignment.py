"""Whose alignment falls short: in rounds that are close, in rounds that are not, and by whom."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from folkmoot.core.coordinator.client.alignment import (
    A_ROUND,
    CLOSELY,
    FEWEST,
    LOOSELY,
    TOO_SHORT,
    Agreement,
    add_shortfall,
    relative_to_usual,
)

Numbers = NDArray[np.float64]


def played(rounds: Numbers) -> list[set[int]]:
    """Who is too short after each of these rounds: a row of alignments each."""
    agreement, short, found = Agreement(), [0.0] * rounds.shape[1], []
    for aligned in rounds:
        relative = relative_to_usual(aligned)
        asked = agreement.asked(relative)
        short = [add_shortfall(s, asked, float(x)) for s, x in zip(short, relative, strict=True)]
        found.append({client for client, s in enumerate(short) if s >= TOO_SHORT})
    return found


def alignments(rounds: int, clients: int, apart: float, seed: int = 0) -> Numbers:
    """Of honest clients, with this standard deviation."""
    return 0.2 * (1 + apart * np.random.default_rng(seed).standard_normal((rounds, clients)))


def simply_usual(aligned: Numbers) -> tuple[float, float]:
    """The usual alignment, and how far apart the closest three fifths are, of all sets."""
    many = next(n for n in range(len(aligned) + 1) if 5 * n >= 3 * len(aligned))
    sets = [sorted(some) for some in combinations(aligned.tolist(), many)]
    closest = min(sets, key=lambda some: some[-1] - some[0])
    usual = max(float(np.median(closest)), float(np.median(aligned)))
    return usual, (closest[-1] - closest[0]) / usual


@pytest.mark.parametrize("clients", range(3, 11))
def test_what_is_usual_is_what_the_closest_three_fifths_say(clients: int) -> None:
    draw = np.random.default_rng(clients)
    for _ in range(50):
        aligned = draw.uniform(0.1, 0.3, clients)
        usual, apart = simply_usual(aligned)
        assert np.allclose(relative_to_usual(aligned), aligned / usual)
        close = clients >= FEWEST and apart <= 0.2
        assert Agreement().asked(aligned / usual) == (CLOSELY if close else LOOSELY)


def test_too_few_results_do_not_show_how_closely_they_agree() -> None:
    assert Agreement().asked(np.ones(FEWEST)) == CLOSELY
    assert Agreement().asked(np.ones(FEWEST - 1)) == LOOSELY


def test_a_round_that_is_close_by_chance_does_not_count_as_close() -> None:
    agreement, wide = Agreement(), np.linspace(0.5, 1.5, 8)
    for _ in range(8):
        assert agreement.asked(wide) == LOOSELY
    asked = [agreement.asked(np.ones(8)) for _ in range(8)]
    assert asked[0] == LOOSELY
    assert asked[-1] == CLOSELY
    assert agreement.asked(wide) == LOOSELY


@pytest.mark.parametrize(("clients", "liars"), [(8, 2), (10, 3), (20, 6)])
def test_who_trained_less_is_found_where_the_others_are_close(clients: int, liars: int) -> None:
    for seed in range(20):
        rounds = alignments(8, clients, 0.04, seed)
        rounds[:, :liars] *= 0.7
        assert set.union(*played(rounds)) == set(range(liars))


def test_who_was_unlucky_for_long_is_not_found_where_the_others_differ() -> None:
    """As honest clients are: half as well aligned for thirty rounds."""
    for seed in range(20):
        rounds = alignments(100, 8, 0.3, seed)
        rounds[50:80, 0] *= 0.55
        assert all(found == set() for found in played(rounds))


@pytest.mark.parametrize("clients", [3, 4, 6, 7, 8, 20])
@pytest.mark.parametrize("apart", [0.05, 0.1, 0.2])
def test_the_honest_are_never_found(clients: int, apart: float) -> None:
    assert all(found == set() for found in played(alignments(2000, clients, apart)))


@pytest.mark.parametrize("apart", [0.0, 0.05, 0.3])
def test_nonsense_is_found_after_four_rounds_or_few_more(apart: float) -> None:
    rounds = alignments(8, 8, apart)
    rounds[:, 3] = 0.005
    found = played(rounds)
    assert found[2] == set()
    assert found[3] == {3}


def test_two_of_five_that_go_the_other_way_are_not_the_usual() -> None:
    assert relative_to_usual(np.array([-0.2, -0.2, 0.2, 0.2, 0.2])).tolist() == [-1, -1, 1, 1, 1]


def test_one_round_adds_little_and_a_good_one_takes_off_all_that_it_has_beyond() -> None:
    assert add_shortfall(0.0, CLOSELY, -2.0) == 1.0
    assert add_shortfall(0.0, CLOSELY, CLOSELY - A_ROUND / 2) == pytest.approx(0.5)
    assert add_shortfall(TOO_SHORT, CLOSELY, -2.0) == TOO_SHORT
    assert add_shortfall(TOO_SHORT, CLOSELY, 1.0) == pytest.approx(TOO_SHORT - 0.15 / A_ROUND)
    assert add_shortfall(TOO_SHORT, LOOSELY, 1.0) == 0.0


def test_who_knows_of_fewer_rounds_never_finds_more() -> None:
    draw = np.random.default_rng(0)
    long, short = 0.0, 0.0
    for at, relative in enumerate(draw.normal(0.7, 0.3, 1000)):
        if at % 50 == 0:
            short = 0.0
        asked = CLOSELY if draw.random() < 0.5 else LOOSELY
        long, short = (add_shortfall(s, asked, relative) for s in (long, short))
        assert short <= long
