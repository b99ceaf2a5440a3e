"""Kill whoever puts, gets or holds, at any moment: every record comes out, and was put once."""

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faults import channel_processes as parts
from folkmoot.host.processes import Processes
from folkmoot.unified.channel import DataChannel

SCRIPT = Path(parts.__file__)
NAMES = ("broker", "p0", "p1", "c0", "c1")


class Channel:
    """The processes of one channel. Those that were killed are started again."""

    def __init__(self, folder: Path, processes: Processes, count: int) -> None:
        self.folder, self.processes, self.count = folder, processes, count
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        role = {"p": "produce", "c": "consume"}.get(name[0], "broker")
        words = [sys.executable, str(SCRIPT), role, str(self.folder), name, str(self.count)]
        self.processes.start(name, words)

    def running(self) -> list[str]:
        return [name for name in NAMES if self.processes[name].poll() is None]

    def kill(self, name: str) -> None:
        if self.processes[name].poll() is None:
            self.processes.kill(name)
            self.start(name)

    def wait(self, done: Callable[[], bool]) -> None:
        while not done():
            self.processes.wait(0.02)
            failed = self.processes.failed()
            assert not failed, self.processes.output(failed[0])

    def lines(self) -> list[tuple[int, str, int, str]]:
        """(id, producer, number, whether it was right) of what consumers were given."""
        found = []
        for path in self.folder.glob("c?.txt"):
            for line in path.read_text().rpartition("\n")[0].splitlines():
                id_, producer, number, right = line.split()
                found.append((int(id_), producer, int(number), right))
        return found

    def check(self) -> None:
        """When all producers and consumers have ended."""
        lines = self.lines()
        assert {right for *_, right in lines} == {"right"}
        ids: dict[int, set[tuple[str, int]]] = {}
        for id_, producer, number, _ in lines:
            ids.setdefault(id_, set()).add((producer, number))
        assert all(len(records) == 1 for records in ids.values()), "an id names one record"
        records = [record for some in ids.values() for record in some]
        wanted = [(name, number) for name in ("p0", "p1") for number in range(1, self.count + 1)]
        assert sorted(records) == wanted, "every record was put once, and came out"
        with DataChannel("c", parts.address(self.folder), parts.SECRET) as channel:
            assert channel.stats().depth == 0
        assert not list(self.folder.glob("channels/c/heap.*"))


@pytest.fixture
def shared_memory() -> Iterator[None]:
    before = set(os.listdir("/dev/shm"))
    yield
    ours = {name for name in set(os.listdir("/dev/shm")) - before if "folkmoot" in name}
    assert not ours


@pytest.fixture
def start(tmp_path: Path, shared_memory: None) -> Iterator[Callable[[int], Channel]]:
    with Processes(tmp_path / "output") as processes:
        yield lambda count: Channel(tmp_path, processes, count)


def ended(channel: Channel) -> bool:
    return channel.running() == ["broker"]


def test_each_is_killed_once_in_the_middle(start: Callable[[int], Channel]) -> None:
    channel = start(3000)
    for number, name in enumerate(NAMES, 1):
        channel.wait(lambda number=number: len(channel.lines()) > 500 * number)  # type: ignore[misc]
        channel.kill(name)
    channel.wait(lambda: ended(channel))
    channel.check()


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(6))
def test_all_are_killed_again_and_again(start: Callable[[int], Channel], seed: int) -> None:
    chance = random.Random(seed)
    channel = start(10_000)
    for _ in range(12):
        # Somewhere in the next records, from the first on; there are so many only.
        target = min(len(channel.lines()) + chance.choice([1, 10, 100, 1500]), 2 * channel.count)
        channel.wait(lambda target=target: len(channel.lines()) >= target)  # type: ignore[misc]
        for name in chance.sample(NAMES, chance.choice([1, 1, 1, 2, len(NAMES)])):
            channel.kill(name)
    channel.wait(lambda: ended(channel))
    channel.check()


def test_a_stopped_consumer_holds_nobody_up(start: Callable[[int], Channel]) -> None:
    channel = start(1500)
    channel.wait(lambda: len(channel.lines()) > 300)
    channel.processes["c0"].send_signal(signal.SIGSTOP)
    channel.wait(lambda: not {"p0", "p1", "c1"} & set(channel.running()))
    channel.processes["c0"].send_signal(signal.SIGCONT)
    channel.wait(lambda: ended(channel))
    channel.check()
