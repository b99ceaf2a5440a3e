"""What a coordinator's owner reads while it runs: rounds, and whatever went wrong, in sentences."""

from collections.abc import Callable
from typing import Any

from folkmoot.core.federation import messages as m
from folkmoot.federated.coordinator import events


def sentence(record: Any) -> str:
    """What happened, or nothing where the owner need not know."""
    told = SENTENCES.get(type(record))
    return told(record) if told else ""


def short(id: str) -> str:
    """An id as people compare it: of a key its first digits."""
    return f"{id[:12]}…" if len(id) == 64 else id


def _some(ids: tuple[str, ...]) -> str:
    return ", ".join(map(short, ids[:5])) + (" and others" if len(ids) > 5 else "")


SENTENCES: dict[type, Callable[[Any], str]] = {
    m.Joined: lambda r: f"{short(r.id)} joined",
    m.Left: lambda r: f"{short(r.id)} left: {r.reason}",
    m.LeftOut: lambda r: (
        f"round {r.round} goes on without {_some(r.ids)}: too slow beside the others"
    ),
    m.StateChanged: lambda r: f"{r.after}: {r.when}" if r.after == "STANDBY" else "",
    events.Aggregated: lambda r: f"round {r.round}: a model of {r.updates} updates",
    events.SumMade: lambda r: f"round {r.round}: a sum of {r.updates} updates",
    events.AggregationFailed: lambda r: (
        f"round {r.round}: no model can be made now, again in {r.retry_in:g} s: {r.reason}"
    ),
    events.UpdateSpoiled: lambda r: (
        f"round {r.round}: the update of {short(r.id)} is taken out, with it there is no model: "
        f"{r.reason}"
    ),
    events.UpdateRefused: lambda r: (
        f"round {r.round}: the update of {short(r.id)} is refused: {r.reason}"
    ),
    events.AttemptFailed: lambda r: f"round {r.round}: masked again, because {r.reason}",
}
