"""What a client or a server does, a line at a time, for who started it and sees its terminal."""

import time
from collections.abc import Callable

from folkmoot.client import events
from folkmoot.core.coordinator import messages as m
from folkmoot.core.identity import short
from folkmoot.core.machine import Effect
from folkmoot.host.event_log import Record
from folkmoot.host.plain_text import plain_text

# Seconds between two lines about training that goes well.
EVERY = 10.0


class Narrator:
    """Call it with every record of a client; it says those that matter to a person."""

    def __init__(
        self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._next = 0.0
        self._clients = 0
        self._epoch = -1
        self._last = ""

    def __call__(self, record: Record) -> None:
        # Servers and peers have their words in it: addresses, reasons.
        line = plain_text(self._words(record) or "")
        if line and line != self._last:
            self._last = line
            self._say(line)

    def _words(self, record: Record) -> str | None:
        match record:
            case events.Doing(what):
                return what
            case events.Began(parameters=parameters):
                return f"is ready: a model of {parameters:,} parameters"
            case events.StateSeen(state, epoch, _, _, clients):
                return self._state(state, epoch, clients)
            case events.ShareTrained(step=step, loss=loss, tokens_per_second=speed):
                return self._progress(step, loss, speed)
            case events.ModelLoaded(source=source):
                return f"has the model ({source})"
            case events.CheckpointStored(location=location):
                return f"stored the model at {location}"
            case events.RunChanged(changes):
                return f"builds its model anew; the owner changed {'; '.join(changes)}"
        return _warning(record)

    def _state(self, state: str, epoch: int, clients: int) -> str | None:
        self._clients = clients
        if state == "RoundTrain" and epoch != self._epoch:
            self._epoch = epoch
            return f"epoch {epoch} trains with {clients} clients"
        return None

    def _progress(self, step: int, loss: float, speed: int) -> str | None:
        if self._clock() < self._next:
            return None
        self._next = self._clock() + EVERY
        others = f"{self._clients} clients"
        return f"step {step}, loss {loss:.3f}, {speed:,} tokens/s here, {others}"


def _warning(record: Record) -> str | None:
    match record:
        case events.AuthorityUnreachable(reason):
            return f"cannot reach the run: {reason}"
        case events.PeerUnreachable(peer, address, reason):
            return f"cannot reach client {peer} at {address}: {reason}"
        case events.PeerReached(peer):
            return f"reached client {peer}"
        case events.ModelNotLoaded(reason=reason):
            return f"could not load the model: {reason}"
        case events.ShareFailed(reason=reason):
            return f"could not train its share: {reason}"
        case events.CheckpointFailed(reason=reason):
            return f"could not store the model: {reason}"
    return None


class ServerNarrator:
    """Call it with every effect of a run; it says those that matter to its owner."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._unreachable: dict[bytes, tuple[bytes, ...]] = {}

    def __call__(self, effect: Effect) -> None:
        if line := self._words(effect):
            self._say(line)

    def _words(self, effect: Effect) -> str | None:
        match effect:
            case m.ClientRemoved(id):
                self._unreachable.pop(id, None)
            case m.PeersUnreachable(id, peers):
                if self._unreachable.get(id) == peers:
                    return None
                self._unreachable[id] = peers
            case m.EpochStarted():
                self._unreachable.clear()
            case m.StateChanged(after="Paused" | "Finished" as after, why=why):
                return f"{after}: {why}"
        return sentence(effect)


def sentence(effect: object) -> str | None:
    """An effect of a run in words, if it matters to a person."""
    match effect:
        case m.ClientJoined(id):
            return f"client {short(id)} waits for the next epoch"
        case m.ClientRemoved(id, why):
            return f"client {short(id)} removed: {why}"
        case m.PeersUnreachable(id, peers):
            return f"client {short(id)} cannot reach {', '.join(map(short, peers))}"
        case m.EpochStarted(epoch, clients):
            return f"epoch {epoch} starts with {clients} clients"
        case m.CheckpointStored(location, step):
            return f"checkpoint of step {step} stored at {location}"
        case m.Rewound(before, to):
            return f"rewound from step {before} to {to}"
        case m.Updated(changes):
            return f"the owner changed {'; '.join(changes) or 'nothing'}"
    return None
