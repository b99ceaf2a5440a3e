"""A job's events as they happen, in lines for who watches it run."""

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from folkmoot.core.job import messages as m
from folkmoot.host.event_log import LogReader, records_in
from folkmoot.unified.master import events

# Seconds between two looks into the log.
LOOK = 0.2


def follow(path: Path, say: Callable[[str], None]) -> None:
    """For ever; what was in the log before is not said."""
    reader = LogReader(path, records_in(m, events))
    for _ in reader.new():
        pass
    while True:
        for entry in reader.new():
            if line := line_of(entry.record):
                say(line)
        time.sleep(LOOK)


def line_of(record: msgspec.Struct) -> str:
    """ "" for what only programs want to know."""
    match record:
        case m.StateChanged():
            return f"{record.after}: {record.why}"
        case m.Blamed():
            return f"{record.actor} {record.how}"
        case m.Collateral():
            return f"{record.actor} failed because of {record.because_of}: {record.how}"
        case m.Recovering():
            return f"started anew ({record.domain}): {', '.join(record.actors)}"
        case m.Delayed():
            times = f"failed {record.in_a_row} times in a row"
            return f"{record.actor} {times}: it starts anew in {record.seconds:g} s"
        case events.ActorHangs():
            return f"{record.actor} {record.how}; it is here:\n{record.stacks}"
        case events.NodeLost():
            return f"node {record.node} is lost"
        case events.MasterBegan(resumed=True):
            return f"a new master goes on with {len(record.living)} living actors"
    return ""
