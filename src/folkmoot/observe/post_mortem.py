"""What happened to a job, from its event log: who failed first, what followed, what it cost."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from folkmoot.core.job import messages as m
from folkmoot.host.event_log import LoggedRecord, LogReader, records_in
from folkmoot.unified.master import events


class Incident(msgspec.Struct, kw_only=True):
    """One first cause and what it led to. Times are milliseconds since 1970."""

    at: int
    actor: str
    how: str
    kind: str
    domain: str = ""
    restarted: tuple[str, ...] = ()
    collateral: list[str] = []
    traceback: str = ""
    # Who runs again, and when.
    back: dict[str, int] = {}

    @property
    def lost_ms(self) -> int:
        """Working time of all whom it stopped, together."""
        return sum(back - self.at for back in self.back.values())

    @property
    def away_ms(self) -> int | None:
        """Until the last of them worked again; None if not all did."""
        if not self.restarted or set(self.restarted) - self.back.keys():
            return None
        return max(self.back[actor] for actor in self.restarted) - self.at


class Story(msgspec.Struct, kw_only=True):
    began: int = 0
    running: int | None = None
    ended: int | None = None
    exit_code: int | None = None
    reason: str = ""
    masters: int = 0
    incidents: list[Incident] = []
    last: int = 0

    @property
    def lost_ms(self) -> int:
        return sum(incident.lost_ms for incident in self.incidents)


def read_story(path: Path) -> Story:
    story, raised = Story(), dict[str, str]()
    for entry in LogReader(path, records_in(m, events)).new():
        story.last = entry.time
        _take(story, entry, raised)
    return story


def _take(story: Story, entry: LoggedRecord, raised: dict[str, str]) -> None:
    time, record = entry
    match record:
        case events.MasterBegan():
            story.masters += 1
            story.began = story.began or time
        case m.StateChanged(after="RUNNING"):
            story.running = story.running or time
        case m.Finish():
            story.ended = time
            story.exit_code, story.reason = record.exit_code, record.reason
        case events.ActorRaised():
            raised[record.actor] = record.traceback
        case m.Blamed():
            _blame(story, time, record, raised)
        case m.Collateral() if story.incidents:
            story.incidents[-1].collateral.append(f"{record.actor}: {record.how}")
        case m.Recovering() if story.incidents:
            story.incidents[-1].domain = record.domain
            story.incidents[-1].restarted = record.actors
        case m.ActorChanged(after="RUNNING" | "FINISH"):
            _back(story, time, record.actor)


def _blame(story: Story, time: int, record: m.Blamed, raised: dict[str, str]) -> None:
    if record.instead_of and story.incidents and story.incidents[-1].actor == record.instead_of:
        wrong = story.incidents.pop()
        wrong.collateral.append(f"{wrong.actor}: {wrong.how}")
        collateral = wrong.collateral
    else:
        collateral = []
    story.incidents.append(
        Incident(
            at=time,
            actor=record.actor,
            how=record.how,
            kind=record.kind,
            collateral=collateral,
            traceback=raised.pop(record.actor, "") if record.kind == "error" else "",
        )
    )


def _back(story: Story, time: int, actor: str) -> None:
    for incident in story.incidents:
        if actor in incident.restarted or actor == incident.actor:
            incident.back.setdefault(actor, time)


def told(story: Story) -> Iterator[str]:
    """The story in lines for people."""
    if not story.masters:
        yield "nothing happened yet"
        return
    start = story.running - story.began if story.running else None
    yield f"started in {_seconds(start)}" if start is not None else "it never came to run"
    if story.masters > 1:
        yield f"its master was replaced {story.masters - 1} times; workers went on meanwhile"
    for number, incident in enumerate(story.incidents, 1):
        yield from _told(number, incident, story.began)
    if story.incidents:
        yield f"in all, failures cost {_seconds(story.lost_ms)} of workers' time"
    else:
        yield "nobody failed"
    if story.ended is None:
        yield "it is not over"
    else:
        took = _seconds(story.ended - story.began)
        yield f"ended after {took} with exit code {story.exit_code}: {story.reason}"


def _told(number: int, incident: Incident, began: int) -> Iterator[str]:
    yield f"{number}. after {_seconds(incident.at - began)}: {incident.actor} {incident.how}"
    for collateral in incident.collateral:
        yield f"     because of that, {collateral}"
    if incident.restarted:
        who = ", ".join(incident.restarted)
        away = incident.away_ms
        until = f"running again after {_seconds(away)}" if away is not None else "never ran again"
        yield f"     started anew ({incident.domain}): {who}; {until}"
    if incident.traceback:
        yield from (f"     | {line}" for line in incident.traceback.rstrip().splitlines()[-8:])


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f} s"
