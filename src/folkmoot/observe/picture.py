"""The state of a run, put together from the logs of its processes."""

from collections import deque
from pathlib import Path
from typing import Any

import msgspec

from folkmoot.host.event_log import Reader


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
    loaded: str = ""
    gone: bool = False


class Mark(msgspec.Struct, frozen=True):
    """Something worth a line in a plot."""

    step: int
    text: str


class Picture:
    """Fed with events; read by the terminal view, the plot and the summary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server = Reader(folder / "server" / "events.jsonl")
        self._readers: dict[str, Reader] = {}
        self.clients: dict[str, ClientPicture] = {}
        self.phase = "WaitingForMembers"
        self.since = 0.0
        self.epoch = self.height = self.step = self.members = self.tokens = 0
        self.training_loss: dict[int, list[float]] = {}
        self.held_out: dict[int, float] = {}
        self.marks: list[Mark] = []
        self.checkpoint = ""
        self.trail: deque[str] = deque(maxlen=8)
        self._noted: list[str] = []
        self._begun: float | None = None
        self._last = 0.0

    @property
    def seconds(self) -> float:
        return self._last - self._begun if self._begun is not None else 0.0

    def update(self) -> list[str]:
        """Take in what was written since the last call; what happened, in words."""
        said, self._noted = self._noted, []
        for event in self._server.new():
            said += self._time(event, self._from_server(event))
        for path in sorted(self.folder.glob("client-*/events.jsonl")):
            name = path.parent.name
            reader = self._readers.setdefault(name, Reader(path))
            client = self.clients.setdefault(name, ClientPicture(name))
            for event in reader.new():
                said += self._time(event, self._from_client(client, event))
        self.trail.extend(said)
        return said

    def _time(self, event: dict[str, Any], words: str | None) -> list[str]:
        at = event["time"]
        self._begun = at if self._begun is None else min(self._begun, at)
        self._last = max(self._last, at)
        return [f"{at - self._begun:7.1f} s  {words}"] if words else []

    def _from_server(self, event: dict[str, Any]) -> str | None:
        match event["type"]:
            case "StateChanged":
                self.phase, self.since = event["after"], event["time"]
            case "EpochStarted":
                self.epoch, self.members = event["epoch"], event["clients"]
                return f"epoch {self.epoch} starts with {self.members} clients"
            case "RoundStarted":
                self.height, self.step = event["height"], event["step"]
            case "RoundJudged":
                self.tokens += event["attested"]
                if event["owed"]:
                    return f"round {event['height']}: {event['owed']} samples are owed"
            case "ClientRemoved":
                self.marks.append(Mark(self.step, "a client left"))
                return f"client {event['id'][:8]} removed: {event['why']}"
            case "ClientJoined":
                if self.step:
                    self.marks.append(Mark(self.step, "a client joined"))
                return f"client {event['id'][:8]} waits for the next epoch"
            case "CheckpointStored":
                self.checkpoint = event["location"]
                return f"checkpoint of step {event['step']} stored at {event['location']}"
            case "Rewound":
                return f"rewound from step {event['from_step']} to {event['to_step']}"
        return None

    def _from_client(self, client: ClientPicture, event: dict[str, Any]) -> str | None:
        match event["type"]:
            case "StateSeen":
                client.state = event["state"]
            case "ShareTrained":
                client.loss, client.rounds = event["loss"], client.rounds + 1
                client.tokens_per_second = event["tokens_per_second"]
                self.training_loss.setdefault(event["step"], []).append(event["loss"])
            case "RoundLearnt":
                client.hash = event["hash"]
            case "Evaluated":
                self.held_out[event["step"]] = event["loss"]
            case "Traffic":
                client.sent, client.received = event["sent"], event["received"]
                client.round_sent += event["round_sent"]
                client.round_results += event["round_results"]
            case "ModelLoaded":
                client.loaded, client.hash = event["source"], event["hash"]
                if event["source"] in ("peers", "storage"):
                    return f"{client.name} got the model from {event['source']}"
            case "ModelNotLoaded":
                return f"{client.name} could not load the model: {event['reason']}"
            case "ResultRefused":
                return f"{client.name} refused a result of {event['sender']}: {event['reason']}"
            case "CheckpointFailed":
                return f"{client.name} could not store the model: {event['reason']}"
            case "Ended":
                client.gone, client.state = True, "ended"
        return None

    def note(self, text: str, mark: str) -> None:
        """Something done to the run from outside."""
        self.marks.append(Mark(self.step, mark))
        self._noted.append(f"{self.seconds:7.1f} s  {text}")

    def losses(self) -> list[tuple[int, float]]:
        """(step, mean training loss) in order."""
        return [(s, sum(v) / len(v)) for s, v in sorted(self.training_loss.items())]
