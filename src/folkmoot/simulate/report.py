"""How a world went, whichever machine it was around."""

import msgspec


class WorldReport(msgspec.Struct, frozen=True):
    seed: int
    events: int
    violation: str | None = None
    transcript: str = ""
    counts: dict[str, int] = {}  # what happened in it, for the summary
