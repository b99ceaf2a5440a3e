"""What no coordinator comes to is told apart from all that it does come to."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from folkmoot.core.coordinator import Coordinator, Phase
from folkmoot.core.coordinator.assignment import Span
from folkmoot.core.coordinator.committee import WitnessProof
from folkmoot.core.coordinator.impossible import impossible
from folkmoot.core.coordinator.state import (
    Client,
    Epoch,
    Judged,
    Left,
    Pending,
    Round,
    Saving,
    Witness,
)
from folkmoot.core.coordinator.view import view
from folkmoot.core.machine import Effect, Event
from folkmoot.core.registry import registry_of
from scenarios.coordinator_words import CoordinatorWords
from scenarios.transcript import replay

TRANSCRIPTS = sorted((Path(__file__).parents[2] / "scenarios" / "coordinator").glob("*.txt"))


class CheckedWords(CoordinatorWords):
    def apply(self, event: Event, now: int, seed: int) -> tuple[Effect, ...]:
        effects = super().apply(event, now, seed)
        for told in (self.state, view(self.state)):
            assert impossible(told) == "", event
        return effects


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_whatever_a_run_comes_to_is_possible(path: Path) -> None:
    words = CheckedWords()
    replay(path.read_text(), words)
    assert words.state is not None


def _training(**changed: Any) -> Coordinator:
    """A state of a round of three clients, one of whom left, whose round is changed so."""
    words = CoordinatorWords()
    words("run min_clients=3 global_batch_size_start=6 delay=0")
    run = words.state.run
    one = Round(4, 2, 7, (Span(0, 3), Span(5, 8)), (1,), bytes(4))
    clients = tuple(Client(bytes([at]) * 32) for at in range(3))
    clients = (clients[0], replace(clients[1], left=Left.Gone), clients[2])
    epoch = Epoch(clients=clients, absent=(1,), rounds=(replace(one, **changed),))
    return replace(words.state, run=run, phase=Phase.RoundTrain, epoch=epoch)


SEEN = Witness(WitnessProof(0, 1, True), bytes(8), bytes(8), bytes(32), bytes(32))


def test_a_round_as_it_can_be() -> None:
    assert impossible(_training()) == ""
    assert impossible(_training(witnesses=(SEEN,))) == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"seed": -1}, "seed or step"),
        ({"seed": 2**64}, "seed or step"),
        ({"step": 2**32}, "seed or step"),
        ({"absent": (3,)}, "without a client that is not there"),
        ({"absent": (-1,)}, "without a client that is not there"),
        ({"absent": (1, 1)}, "without a client that is not there"),
        ({"absent": (2, 1)}, "without a client that is not there"),
        ({"void": (3,)}, "without a client that is not there"),
        ({"absent": (0, 1, 2)}, "without anybody"),
        ({"weights": bytes(2)}, "weighs others"),
        ({"height": -1}, "height"),
        ({"height": 2**40}, "height"),
        ({"witnesses": (SEEN,) * 33}, "more witnesses than are elected"),
        ({"spans": (Span(3, 2),)}, "samples that cannot be"),
        ({"spans": (Span(-1, 2),)}, "samples that cannot be"),
        ({"spans": (Span(0, 2**63),)}, "samples that cannot be"),
        ({"spans": (Span(0, 7),)}, "more samples than a batch"),
        ({"witnesses": (replace(SEEN, participant_bloom=bytes(7)),)}, "filters"),
        ({"witnesses": (replace(SEEN, broadcast_bloom=b""),)}, "filters"),
        ({"witnesses": (replace(SEEN, proof=WitnessProof(0, 3, True)),)}, "witness is not there"),
    ],
)
def test_a_round_as_it_cannot_be(changed: dict[str, Any], why: str) -> None:
    assert why in impossible(_training(**changed))


def test_an_epoch_as_it_cannot_be() -> None:
    state = _training()
    epoch, one = state.epoch, state.round
    saving = Saving(replace(one, absent=(9,)), b"", state.progress, 0)
    for changed, why in (
        ({"rounds": ()}, "no round"),
        ({"rounds": tuple(replace(one, height=n) for n in range(5))}, "more rounds"),
        ({"absent": (0, 1)}, "did not leave"),
        ({"clients": (Client(b"one"),) * 65_536}, "more than 65,535 clients"),
        ({"rounds": (one, replace(one, height=6))}, "do not follow"),
        ({"rounds": (one, replace(one, height=2**62))}, "do not follow"),
        ({"absent": (3,)}, "absent"),
        ({"judged": Judged(3, (3,))}, "judged"),
        ({"judged": Judged(3, (), (3,))}, "judged"),
        ({"leaving": ((3, Left.Gone),)}, "leaves"),
        ({"warmup": replace(one, seed=-1)}, "seed"),
        ({"cooldown": replace(one, absent=(9,))}, "without a client"),
        ({"saving": saving}, "without a client"),
    ):
        assert why in impossible(replace(state, epoch=replace(epoch, **changed)))  # type: ignore[arg-type]
    assert "no round" in impossible(
        replace(state, phase=Phase.Cooldown, epoch=replace(epoch, rounds=()))
    )
    waiting = registry_of(Pending(n.to_bytes(32, "big"), 0) for n in range(65_536))
    assert "more than 65,535 clients" in impossible(replace(state, pending=waiting))
    for number in (-1, 2**40):
        assert "epoch or step" in impossible(replace(state, epoch_number=number))
        step = replace(state.progress, step=number)
        assert "epoch or step" in impossible(replace(state, progress=step))
    owed = replace(state.progress, owed=(Span(2, 1),))
    assert "owed" in impossible(replace(state, progress=owed))
    kept = replace(state.checkpoint, progress=owed)
    assert "owed" in impossible(replace(state, checkpoint=kept))
    kept = replace(state.checkpoint, location="store/\x1b[2J")
    assert "cannot be shown" in impossible(replace(state, checkpoint=kept))
