"""Marks, ejection and coming back."""

from msgspec.structs import replace

from folkmoot.core.coordinator import Phase
from folkmoot.core.coordinator.config import CoordinatorConfig, Run
from folkmoot.core.coordinator.standing import MARKS, TOO_MANY, is_out, weigh
from folkmoot.core.coordinator.state import Client, Coordinator, Epoch, Left

NAMES = [bytes([n]) * 32 for n in range(4)]
EVERYBODY = range(4)


def in_epoch(number: int = 5, **config: int) -> Coordinator:
    run = Run(run_id="moot", config=CoordinatorConfig(total_steps=9, **config))
    epoch = Epoch(clients=tuple(Client(name) for name in NAMES))
    return Coordinator(run, Phase.RoundWitness, 0, epoch_number=number, epoch=epoch)


def test_a_single_odd_result_is_forgotten_after_as_many_good_ones_as_it_left_marks() -> None:
    state = weigh(in_epoch(), [2], [0, 1, 3])
    assert state.marks == ((NAMES[2], MARKS),)
    for _ in range(MARKS):
        state = weigh(state, [], EVERYBODY)
    assert state.marks == ()
    assert weigh(state, [], EVERYBODY) is state


def test_who_sends_one_odd_result_in_five_stays_and_one_in_two_leaves() -> None:
    for every, leaves in ((5, False), (2, True)):
        state = in_epoch()
        for number in range(200):
            odd = number % every == 0
            state = weigh(state, [1] if odd else [], [0, 2, 3] if odd else EVERYBODY)
        assert bool(state.ejected) is leaves


def test_who_is_ejected_leaves_with_the_reason_and_comes_back_after_its_time() -> None:
    state = in_epoch(number=5, ejection_epochs=2)
    for _ in range(-(-TOO_MANY // MARKS)):
        state = weigh(state, [3], [0, 1, 2])
    assert state.epoch.leaving == ((3, Left.Ejected),)
    assert state.marks == ()
    out = [n for n in range(5, 12) if is_out(replace(state, epoch_number=n), NAMES[3])]
    assert out == [5, 6, 7]  # the epoch in which it was, and two more
    assert not is_out(state, NAMES[0])
