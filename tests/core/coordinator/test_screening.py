"""What witnesses screen: results that are not what somebody trained, and no others."""

from collections.abc import Callable

import numpy as np
import pytest

from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.coordinator.client.alignment import TOO_SHORT
from folkmoot.core.coordinator.client.ledger import Result
from folkmoot.core.coordinator.client.screening import (
    SKETCHES_KEPT,
    SUMS,
    ComparedResult,
    Screening,
)
from folkmoot.simulate.run.directions import direction

Make = Callable[[int, int], bytes]  # a sketch for a client and a round
ENOUGH = int(TOO_SHORT)  # rounds of nonsense


def who(client: int) -> bytes:
    return bytes([client]) * 32


def toward(where: str) -> Make:
    def make(client: int, height: int) -> bytes:
        name = bytes([client, height % 256]) * 16
        return direction(where, Result(0, height, who(client), name, name, 1))

    return make


honest = toward("all")


def retouched(sketch: bytes) -> bytes:
    """Almost the same result, whose bytes go by another name."""
    return sketch[:4] + bytes([sketch[4] ^ 1]) + sketch[5:]


class Rounds:
    """Rounds of some clients as one witness sees them; `lies` say how some of them cheat."""

    def __init__(self, clients: int, lies: dict[int, Make] | None = None) -> None:
        self.clients, self.lies = clients, lies or {}
        self.screening, self.height = Screening(), 0
        self.samples = dict.fromkeys(range(clients), 8)

    def play(self, order: list[int] | None = None) -> set[int]:
        order = order or list(range(self.clients))
        sketches = {c: self.lies.get(c, honest)(c, self.height) for c in order}
        arrivals = [ComparedResult(who(c), sketches[c][:64], sketches[c]) for c in order]
        shares = {who(c): (Span(0, n),) for c, n in self.samples.items()}
        found = self.screening.judge((0, self.height), self.height, arrivals, shares)
        self.height += 1
        return {c for c in order if who(c) in found}

    def first_screened(self, client: int, rounds: int = 12) -> int:
        """In which round, from 1; nobody else ever."""
        for number in range(1, rounds + 1):
            screened = self.play()
            assert screened <= self.lies.keys()
            if client in screened:
                return number
        raise AssertionError(f"{client} was not screened in {rounds} rounds")


@pytest.mark.parametrize("clients", [2, 3, 4, 10])
def test_honest_clients_are_never_screened(clients: int) -> None:
    rounds = Rounds(clients)
    assert all(rounds.play() == set() for _ in range(100))


@pytest.mark.parametrize(("clients", "liars"), [(3, 1), (4, 1), (8, 2), (10, 3)])
def test_who_goes_against_all_is_screened_at_once_however_many_agree(
    clients: int, liars: int
) -> None:
    rounds = Rounds(clients, dict.fromkeys(range(liars), toward("against")))
    assert all(rounds.play() == set(range(liars)) for _ in range(5))


def test_who_goes_nowhere_is_screened_after_some_rounds() -> None:
    rounds = Rounds(4, {2: toward("nowhere")})
    assert rounds.first_screened(2) == ENOUGH
    assert all(rounds.play() == {2} for _ in range(5))


def test_colluders_that_agree_with_each_other_do_not_become_the_majority() -> None:
    """Their results are nearer to each other than honest ones, and not near enough for copies."""

    def together(client: int, height: int) -> bytes:
        common = np.random.default_rng(height).standard_normal(SUMS)
        sums = common + np.random.default_rng((height, client)).standard_normal(SUMS)
        return np.float32(1).tobytes() + np.rint(sums * 5000).astype("<i2").tobytes()

    rounds = Rounds(10, dict.fromkeys((1, 4, 7), together))
    assert [rounds.play() for _ in range(ENOUGH)][-1] == {1, 4, 7}


def test_a_copy_of_anothers_is_screened_and_the_first_to_come_is_not() -> None:
    rounds = Rounds(4, {3: lambda _, height: honest(1, height)})
    assert rounds.play([0, 1, 3, 2]) == {3}
    assert rounds.play([3, 0, 1, 2]) == {1}  # whoever heard them so is a witness alone


def test_a_copy_that_was_retouched_is_screened_too() -> None:
    rounds = Rounds(4, {3: lambda _, height: retouched(honest(1, height))})
    assert rounds.play([0, 1, 3, 2]) == {3}


def test_ones_own_earlier_result_is_screened_though_it_was_retouched() -> None:
    rounds = Rounds(4, {2: lambda client, height: honest(client, height)})
    assert rounds.play() == set()
    rounds.lies[2] = lambda client, height: retouched(honest(client, height - 1))
    assert rounds.play() == {2}


@pytest.mark.parametrize("age", [1, SKETCHES_KEPT])
def test_ones_own_earlier_result_is_screened(age: int) -> None:
    rounds = Rounds(
        4, {2: lambda client, height: honest(client, height if height < 5 else height - age)}
    )
    played = [rounds.play() for _ in range(6)]
    assert played[:5] == [set()] * 5
    assert played[5] == {2}


def test_a_constant_direction_is_screened() -> None:
    rounds = Rounds(4, {0: lambda client, _: honest(client, 77)})
    assert rounds.first_screened(0) == 2


@pytest.mark.parametrize("energy", [100.0, 0.0, float("nan")])
def test_who_is_far_louder_or_says_nothing_is_screened(energy: float) -> None:
    rounds = Rounds(4, {1: lambda c, h: np.float32(energy).tobytes() + honest(c, h)[4:]})
    assert rounds.first_screened(1) == 1


def noisier(noise: float) -> Make:
    """What honest clients send, and noise of its own: so many parts of it."""

    def make(client: int, height: int) -> bytes:
        near = np.frombuffer(honest(client, height), "<i2", offset=4).astype(float)
        far = np.frombuffer(toward("nowhere")(client + 100, height), "<i2", offset=4).astype(float)
        sums = near + far * noise
        scaled = np.rint(sums * (32000 / np.abs(sums).max())).astype("<i2")
        return np.float32(1).tobytes() + scaled.tobytes()

    return make


def test_less_is_asked_of_a_smaller_share() -> None:
    """An eighth as well aligned as the others: too little for most, enough for one sample."""
    assert Rounds(4, {1: noisier(8)}).first_screened(1) <= ENOUGH + 2
    lenient = Rounds(4, {1: noisier(8)})
    lenient.samples[1] = 1
    assert all(lenient.play() == set() for _ in range(12))


@pytest.mark.parametrize(("clients", "liars"), [(7, 1), (8, 2), (10, 3)])
def test_who_trained_a_part_of_its_share_is_screened_however_many_do(
    clients: int, liars: int
) -> None:
    """Seven tenths as well aligned as the others, which agree closely."""
    rounds = Rounds(clients, dict.fromkeys(range(liars), noisier(1)))
    played = [rounds.play() for _ in range(12)]
    assert played[: ENOUGH - 1] == [set()] * (ENOUGH - 1)
    assert set.union(*played[:8]) == set(range(liars))
    assert played[-1] == set(range(liars))


def test_who_is_a_little_less_aligned_where_all_agree_faintly_stays() -> None:
    """Seven tenths as well aligned again; but then honest ones are, for rounds on end."""
    rounds = Rounds(12, dict.fromkeys(range(12), noisier(0.8)) | {1: noisier(1.5)})
    assert all(rounds.play() == set() for _ in range(24))


def test_a_witness_that_came_later_concludes_it_later() -> None:
    early, late = (Rounds(8, {1: noisier(1)}) for _ in range(2))
    for _ in range(6):
        early.play()
    late.height = early.height
    assert early.play() == {1}
    assert [late.play() for _ in range(ENOUGH - 1)] == [set()] * (ENOUGH - 1)


def test_who_trained_a_part_of_a_smaller_share_is_not_told_from_its_noise() -> None:
    rounds = Rounds(8, {1: noisier(1)})
    rounds.samples[1] = 4
    assert all(rounds.play() == set() for _ in range(12))


def test_after_a_rewind_the_same_work_may_give_the_same_results() -> None:
    rounds = Rounds(3)
    assert [rounds.play() for _ in range(3)] == [set()] * 3
    rounds.height = 0
    assert [rounds.play() for _ in range(3)] == [set()] * 3


def test_where_honest_results_do_not_agree_nothing_is_concluded_from_directions() -> None:
    rounds = Rounds(5, {c: toward("nowhere") for c in range(5)})
    assert all(rounds.play() == set() for _ in range(12))


def test_results_without_sketches_are_compared_by_name() -> None:
    screening, shares = Screening(), {who(c): (Span(0, 1),) for c in range(4)}
    names = [b"a", b"b", b"b", b"c"]
    arrivals = [ComparedResult(who(c), names[c], b"") for c in range(4)]
    assert screening.judge((0, 0), 0, arrivals, shares) == {who(2)}
    again = [ComparedResult(who(c), name, b"") for c, name in enumerate([b"d", b"e", b"f", b"c"])]
    assert screening.judge((0, 1), 1, again, shares) == {who(3)}


def test_of_clients_that_come_and_go_the_last_are_remembered() -> None:
    screening = Screening()
    for height in range(40):
        came = [who(4 * height + c) for c in range(4)]
        arrivals = [ComparedResult(name, name, b"") for name in came]
        screening.judge((0, height), height, arrivals, {name: (Span(0, 1),) for name in came})
        assert set(came) <= screening._seen.keys()
    assert len(screening._seen) <= 3 * 4
