"""The state as a value: places and indices, columns of bits, bytes that are equal anywhere."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from folkmoot.core.coordinator import Run, create, decode, decode_run, encode
from folkmoot.core.coordinator.config import CoordinatorConfig
from folkmoot.core.coordinator.state import (
    Client,
    Coordinator,
    Epoch,
    Phase,
    Round,
    bit,
    count_bits,
    with_bits,
)

RUN = Run(run_id="run", config=CoordinatorConfig(total_steps=5))


@given(st.integers(1, 60), st.data())
def test_place_and_index_are_inverse_whoever_is_absent(clients: int, data: st.DataObject) -> None:
    absent = tuple(sorted(data.draw(st.sets(st.integers(0, clients - 1), max_size=clients - 1))))
    everyone = tuple(Client(bytes([k]) * 32) for k in range(clients))
    state = Coordinator(RUN, Phase.RoundTrain, 0, epoch=Epoch(clients=everyone))
    round_ = Round(0, 0, 0, absent=absent)
    roster = [place for place in range(clients) if place not in absent]
    assert state.roster_size(round_) == len(roster)
    assert [state.place(round_, index) for index in range(len(roster))] == roster
    expected = [roster.index(place) if place in roster else None for place in range(clients)]
    assert [state.index(round_, place) for place in range(clients)] == expected
    assert all(state.find(client.id) == place for place, client in enumerate(everyone))
    assert state.find(b"\xff" * 32) is None


@given(st.sets(st.integers(0, 99)))
def test_a_column_of_bits_is_a_set(places: set[int]) -> None:
    column = bytes(13)
    for place in places:
        column = with_bits(column, (place,))
    assert {place for place in range(100) if bit(column, place)} == places
    assert count_bits(column) == len(places)


def test_equal_configurations_give_equal_bytes() -> None:
    """Also when one says 0 and the other 0.0 or -0.0."""
    said = [
        Run(run_id="run", config=CoordinatorConfig(total_steps=5, warmup_time=zero, epoch_time=600))
        for zero in (0, 0.0, -0.0)
    ]
    said.append(
        decode_run(
            'run_id = "run"\nconfig = { total_steps = 5, warmup_time = -0.0, epoch_time = 600 }'
        )
    )
    assert len({encode(create(run, 0)) for run in said}) == 1


@given(st.binary(max_size=80))
def test_bytes_that_are_not_a_state_are_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        decode(data)
    whole = encode(create(RUN, 0))
    with pytest.raises((msgspec.ValidationError, msgspec.DecodeError)):
        decode(whole[: len(data)])
