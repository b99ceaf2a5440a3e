"""The log of each kind of process, as a reader that knows its records."""

import os
from pathlib import Path

from folkmoot.authority.server import events as server_events
from folkmoot.client import events as client_events
from folkmoot.core.coordinator import messages as run_effects
from folkmoot.core.federation import messages as federation_effects
from folkmoot.federated.coordinator import events as coordinator_events
from folkmoot.federated.participant import events as participant_events
from folkmoot.host.event_log import LoggedRecord, LogReader, records_in

#: The records of each kind of log, by who writes it: `folkmoot serve` and `join`, and
#: `folkmoot federate serve` and `join`.
RECORDS = {
    "server": records_in(run_effects, server_events),
    "client": records_in(client_events),
    "coordinator": records_in(federation_effects, coordinator_events),
    "participant": records_in(participant_events),
}


def open_log(path: str | os.PathLike[str], kind: str) -> LogReader:
    """A reader of the log at `path`; `kind` is one of `RECORDS`."""
    if kind not in RECORDS:
        raise ValueError(f"there is no log of a {kind!r}; there are: {', '.join(RECORDS)}")
    return LogReader(Path(path), RECORDS[kind])


def read_log(path: str | os.PathLike[str], kind: str) -> list[LoggedRecord]:
    """What the log at `path` holds so far; `kind` is one of `RECORDS`, by who wrote it."""
    return list(open_log(path, kind).new())
