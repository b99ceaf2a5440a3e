"""Logs of a small run as its processes would write them, second by second."""

from pathlib import Path

from folkmoot.authority.server import events as server
from folkmoot.client import events as client
from folkmoot.core.coordinator import messages as m
from folkmoot.core.coordinator.state import Left
from folkmoot.core.machine import Effect
from folkmoot.host.event_log import EventLog, Record

ANA, BO = b"\xaa" * 32, b"\xbb" * 32
HASH = "5e" * 32


class Writer:
    """One log; every record comes a second after the one before, in all logs together."""

    now = 1_700_000_000_000

    def __init__(self, path: Path) -> None:
        self._log = EventLog(path, self._tick)

    def _tick(self) -> int:
        Writer.now += 1000
        return Writer.now

    def __call__(self, *records: Record | Effect) -> None:
        for record in records:
            self._log.write(record)


def trained(step: int, loss: float) -> client.ShareTrained:
    return client.ShareTrained(0, step, step, 8, loss, 1.0, 1200, 500)


def write_run(folder: Path) -> None:
    """Two clients train two rounds; one leaves, the other ends with the run."""
    tell = Writer(folder / "server" / "events.jsonl")
    ana = Writer(folder / "client-1" / "events.jsonl")
    bo = Writer(folder / "client-2" / "events.jsonl")
    tell(server.Started("small", "127.0.0.1:7400", resumed=False))
    tell(m.ClientJoined(ANA), m.ClientJoined(BO))
    tell(m.StateChanged("WaitingForMembers", "Warmup"), m.EpochStarted(0, 2))
    ana(client.Began(ANA.hex(), "small", 1000), client.ModelLoaded(0, "seed", HASH, 0.1))
    bo(client.Began(BO.hex(), "small", 1000), client.ModelLoaded(0, "peers", HASH, 0.1))
    for step, losses in enumerate([(5.0, 4.0), (3.0, 2.0)]):
        tell(m.StateChanged("Warmup", "RoundTrain"), m.RoundStarted(0, step, step, 16))
        ana(trained(step, losses[0]), client.Traffic(0, step, 900, 800, 450, 400))
        bo(trained(step, losses[1]), client.Traffic(0, step, 700, 600, 350, 300))
        tell(m.RoundJudged(step, 16 - step, step))
    ana(client.Evaluated(0, 1, 1, 2.25), client.ResultRefused("bbbbbbbb", 1, "too long"))
    tell(m.ClientRemoved(BO, Left.Withdrew), m.Rewound(2, 1))
    bo(client.Ended("left"))
    tell(m.CheckpointStored("/models/1", 1), m.StateChanged("Cooldown", "Finished"))
    ana(client.StateSeen("Finished", 0, 1, 1, 1), client.Ended("the run is finished"))
