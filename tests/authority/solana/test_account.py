"""An account is what a node says it is: what cannot be a run's is refused, whatever it holds."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from solders.account import Account

from authority.solana.differential import play
from authority.solana.test_program import a_round
from authority.solana.vm import Vm, VmRun
from folkmoot.authority.solana import layout
from folkmoot.authority.solana.account import AccountError, read, state_of
from folkmoot.core.coordinator import Run, next_tick
from folkmoot.core.coordinator.client import messages as c
from folkmoot.core.coordinator.client.machine import apply
from folkmoot.core.coordinator.client.state import ClientState
from folkmoot.core.coordinator.config import CoordinatorConfig, Model
from folkmoot.core.coordinator.view import view

CONFIG = CoordinatorConfig(total_steps=5, max_clients=9)


def test_a_run_that_its_owner_could_not_have_written_is_not_trained(vm: Vm) -> None:
    """The program knows some of a run's numbers; the rest is a file to it."""
    broken = Run(run_id="broken", config=CONFIG, model=Model(keep_checkpoints=-1))
    with pytest.raises(AccountError, match=r"a run that cannot be: model\.keep_checkpoints"):
        state_of(VmRun(vm, broken).record)


def numbers_in(kind: np.dtype[Any], at: int = 0) -> Iterator[tuple[int, int]]:
    """(offset, size) of all numbers; of a list, those at its ends."""
    if kind.names is None:
        yield at, kind.itemsize
        return
    for field, offset, *_ in kind.fields.values():  # type: ignore[union-attr]
        of, shape = field.subdtype or (field, (1,))
        for place in {0, shape[0] - 1}:
            yield from numbers_in(of, at + offset + place * of.itemsize)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_node_makes_of_an_account_is_read_or_refused(
    vm: Vm, template: Account, seed: int
) -> None:
    """And in no time: nothing is as long as an account that was made up says it is."""
    chance = random.Random(seed)
    true, numbers = play(seed, vm, template).there.data, list(numbers_in(layout.RUN))
    likely = (0, 1, 7, 255, 256, 2**16 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)
    refused = 0
    for _ in range(150):
        data = bytearray(true)
        for _ in range(chance.choice((1, 1, 2, 5))):
            at, size = chance.choice(numbers)
            number = chance.choice(likely) % 2 ** (8 * size)
            data[at : at + size] = number.to_bytes(size, "little")
        try:
            state = state_of(read(bytes(data)))
        except AccountError:
            refused += 1
            continue
        next_tick(state, 10**12)
        for member in (*state.epoch.clients, *state.pending):
            client = ClientState(member.id, "run")
            for event in (c.Saw(view(state)), c.Loaded(state.epoch_number, bytes(32)), c.Tick()):
                apply(client, event, 10**6)
    assert 0 < refused < 150


def test_places_and_samples_that_cannot_be_are_noticed(vm: Vm) -> None:
    run = a_round(vm)
    true = run.record.copy()
    assert state_of(true).active == 2
    judged, span, weights = true.copy(), true.copy(), true.copy()
    judged["epoch"]["has_judged"], judged["epoch"]["unhealthy"][31] = 1, 0x80
    span["epoch"]["rounds"][0]["spans"][0]["stop"] += 1
    weights["epoch"]["rounds"][0]["weighted"] = 1
    weights["epoch"]["rounds"][0]["election"]["size"] = 1
    for forged, why in (
        (judged, "a client is judged that is not there"),
        (span, "more samples than a batch"),
        (weights, "weighs others than its clients"),
    ):
        with pytest.raises(AccountError, match=why):
            state_of(forged)
