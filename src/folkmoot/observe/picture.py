"""The state of a run, put together from the logs of its processes."""

from collections import deque
from pathlib import Path

import msgspec

from folkmoot.authority.server import events as server
from folkmoot.client import events as client
from folkmoot.core.coordinator import messages as m
from folkmoot.host.event_log import EventsMissed, LoggedRecord, LogReader
from folkmoot.host.plain_text import plain_text
from folkmoot.observe.logs import open_log
from folkmoot.observe.narrator import sentence


class ClientPicture(msgspec.Struct):
    """What is known about one client."""

    name: str
    state: str = "starting"
    loss: float | None = None
    tokens_per_second: int = 0
    sent: int = 0
    received: int = 0
    round_sent: int = 0
    round_results: int = 0
    rounds: int = 0
    hash: str = ""
    gone: bool = False


class PlotMark(msgspec.Struct, frozen=True):
    """Something worth a line in a plot."""

    step: int
    text: str


class Picture:
    """Fed with events; read by the terminal view, the plot and the summary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = open_log(folder / "server" / "events.jsonl", "server")
        self._logs: dict[str, LogReader] = {}
        self.clients: dict[str, ClientPicture] = {}
        self.phase = "WaitingForMembers"
        self.epoch = self.step = self.tokens = 0
        self.training_loss: dict[int, list[float]] = {}
        self.held_out: dict[int, float] = {}
        self.marks: list[PlotMark] = []
        self.checkpoint = ""
        self.trail: deque[str] = deque(maxlen=8)
        self._noted: list[str] = []
        #: Who cannot reach whom: it need not be said twice in an epoch.
        self._unreachable: set[tuple[bytes, tuple[bytes, ...]]] = set()
        self._doing = ""  # what a client said last that it does
        self._begun: int | None = None
        self._last = 0

    @property
    def seconds(self) -> float:
        return (self._last - self._begun) / 1000 if self._begun is not None else 0.0

    @property
    def unread(self) -> int:
        """Lines of the logs that could not be read."""
        return sum(log.damaged for log in (self._server, *self._logs.values()))

    def update(self) -> list[str]:
        """Take in what was written since the last call; what happened, in words."""
        said, self._noted = self._noted, []
        for entry in self._server.new():
            said += self._told(entry.time, self._from_server(entry))
        for path in sorted(self.folder.glob("client-*/events.jsonl")):
            name = path.parent.name
            log = self._logs.setdefault(name, open_log(path, "client"))
            known = self.clients.setdefault(name, ClientPicture(name))
            for entry in log.new():
                words = plain_text(self._from_client(known, entry.record) or "")
                said += self._told(entry.time, words)
        self.trail.extend(said)
        return said

    def _told(self, time: int, words: str | None) -> list[str]:
        self._begun = time if self._begun is None else min(self._begun, time)
        self._last = max(self._last, time)
        return [f"{(time - self._begun) / 1000:7.1f} s  {words}"] if words else []

    def _from_server(self, entry: LoggedRecord) -> str | None:
        match entry.record:
            case m.StateChanged(after=after):
                self.phase = after
            case m.PeersUnreachable(id, peers):
                if (id, peers) in self._unreachable:
                    return None
                self._unreachable.add((id, peers))
            case m.EpochStarted(epoch):
                self._unreachable.clear()
                self.epoch = epoch
            case m.RoundStarted(step=step):
                self.step = step
            case m.RoundJudged(height, attested, owed):
                self.tokens += attested
                if owed:
                    return f"round {height}: {owed} samples are owed"
            case m.ClientRemoved():
                self.marks.append(PlotMark(self.step, "a client left"))
            case m.ClientJoined() if self.step:
                self.marks.append(PlotMark(self.step, "a client joined"))
            case m.CheckpointStored(location):
                self.checkpoint = location
            case server.ConfigDiffers(changes):
                told = "".join(f"\n           {change}" for change in changes)
                return f"the run goes on as it was; its file differs (`folkmoot update`):{told}"
            case EventsMissed(count):
                return f"the server's log misses {count} events"
        return sentence(entry.record)

    def _from_client(self, known: ClientPicture, record: msgspec.Struct) -> str | None:
        match record:
            case client.Doing(what):
                known.state = what.partition(";")[0].partition(":")[0]
                if what != self._doing:  # they mostly do the same at the same time
                    self._doing = what
                    return f"{known.name} {what}"
            case client.StateSeen(state=state):
                known.state = state
            case client.ShareTrained(step=step, loss=loss, tokens_per_second=speed):
                known.loss, known.rounds, known.tokens_per_second = loss, known.rounds + 1, speed
                self.training_loss.setdefault(step, []).append(loss)
            case client.RoundLearnt(hash=hash):
                known.hash = hash
            case client.Evaluated(step=step, loss=loss):
                self.held_out[step] = loss
            case client.Traffic():
                known.sent, known.received = record.sent, record.received
                known.round_sent += record.round_sent
                known.round_results += record.round_results
            case client.ModelLoaded(source=source, hash=hash):
                known.hash = hash
                if source in ("peers", "storage"):
                    return f"{known.name} got the model from {source}"
            case client.ModelNotLoaded(reason=reason):
                return f"{known.name} could not load the model: {reason}"
            case client.ResultRefused(sender=sender, reason=reason):
                return f"{known.name} refused a result of {sender}: {reason}"
            case client.CheckpointFailed(reason=reason):
                return f"{known.name} could not store the model: {reason}"
            case client.Ended():
                known.gone, known.state = True, "ended"
            case EventsMissed(count):
                return f"the log of {known.name} misses {count} events"
        return None

    def note(self, text: str, mark: str) -> None:
        """Something done to the run from outside."""
        self.marks.append(PlotMark(self.step, mark))
        self._noted.append(f"{self.seconds:7.1f} s  {text}")

    def losses(self) -> list[tuple[int, float]]:
        """(step, mean training loss) in order."""
        return [(s, sum(v) / len(v)) for s, v in sorted(self.training_loss.items())]
