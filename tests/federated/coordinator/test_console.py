"""What the owner of a federation reads while it runs."""

from typing import Any

import pytest

from folkmoot.core.federation import messages as m
from folkmoot.federated.coordinator import events
from folkmoot.federated.coordinator.console import sentence

KEY = "ab" * 32


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            events.UpdateSpoiled(KEY, 3, "inf"),
            "round 3: the update of abababababab… is taken out, with it there is no model: inf",
        ),
        (
            events.UpdateRefused("anna", 3, "not finite"),
            "round 3: the update of anna is refused: not finite",
        ),
        (
            events.AggregationFailed(3, "disk full", 2.0),
            "round 3: no model can be made now, again in 2 s: disk full",
        ),
        (
            m.LeftOut(3, ("anna", "bert")),
            "round 3 goes on without anna, bert: too slow beside the others",
        ),
        (events.AttemptFailed(3, 1, "too few"), "round 3: masked again, because too few"),
        (events.Aggregated(3, 5, 0.1, "", {}), "round 3: a model of 5 updates"),
        (events.SumMade(3, 5, 10, 0.1), "round 3: a sum of 5 updates"),
        (m.Counted("3/anna", False), ""),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(record: Any, said: str) -> None:
    assert sentence(record) == said
