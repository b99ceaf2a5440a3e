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


def server_log(path: Path) -> LogReader:
    """Of `folkmoot serve`."""
    return LogReader(path, records_in(run_effects, server_events))


def client_log(path: Path) -> LogReader:
    """Of `folkmoot join`."""
    return LogReader(path, records_in(client_events))


def coordinator_log(path: Path) -> LogReader:
    """Of `folkmoot federate serve`."""
    return LogReader(path, records_in(federation_effects, coordinator_events))


def participant_log(path: Path) -> LogReader:
    """Of `folkmoot federate join`."""
    return LogReader(path, records_in(participant_events))


READERS = {
    "server": server_log,
    "client": client_log,
    "coordinator": coordinator_log,
    "participant": participant_log,
}


def read_log(path: str | os.PathLike[str], kind: str) -> list[LoggedRecord]:
    """What the log at `path` holds so far; `kind` is one of `READERS`, by who wrote it."""
    if kind not in READERS:
        raise ValueError(f"there is no log of a {kind!r}; there are: {', '.join(READERS)}")
    return list(READERS[kind](Path(path)).new())
