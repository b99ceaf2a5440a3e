"""The broker, the producers and the consumers of a channel, each as a process that can be killed.

    python channel_processes.py broker|produce|consume FOLDER NAME [COUNT]

A producer puts records 1 to COUNT, whatever of that it did in a former life. A consumer writes down
what it is given, before it acks it.
"""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from folkmoot.unified.channel import Broker, ChannelRules, DataChannel

SECRET = b"the secret of the job"
RULES = ChannelRules(records=200, size=8_000_000, lease_ms=1000, producers=2)
LARGE_EVERY, LARGE = 25, 150_000


def address(folder: Path) -> str:
    return f"unix:{folder}/socket"


def payload(name: str, number: int) -> Any:
    """Small ones, and some that lie in a heap file alone; different in every byte that counts.

    Batches of small ones are tens of kilobytes, when producers are quick: they lie there together.
    """
    if number % LARGE_EVERY:
        return f"{name} {number} " * (number % 97)
    return np.full(LARGE, number, np.int16)


def broker(folder: Path) -> None:
    with Broker(folder / "channels", SECRET, {"c": RULES}) as held:
        held.listen(address(folder))
        signal.pause()


def produce(folder: Path, name: str, count: int) -> None:
    channel = DataChannel("c", address(folder), SECRET, producer=name)
    for number in range(channel.next_number, count + 1):
        channel.put((name, number, payload(name, number)))
    channel.finish()


def consume(folder: Path, name: str) -> None:
    channel = DataChannel("c", address(folder), SECRET)
    with (folder / f"{name}.txt").open("ab", buffering=0) as output:
        for batch in channel.batches(16):
            lines = [line(i, *record) for i, record in zip(batch.ids, batch, strict=True)]
            output.write("".join(lines).encode())


def line(id_: int, producer: str, number: int, sent: Any) -> str:
    right = np.array_equal(sent, payload(producer, number))
    return f"{id_} {producer} {number} {'right' if right else 'WRONG'}\n"


if __name__ == "__main__":
    role, folder, name, *rest = sys.argv[1:]
    if role == "broker":
        broker(Path(folder))
    elif role == "produce":
        produce(Path(folder), name, int(rest[0]))
    else:
        consume(Path(folder), name)
    os._exit(0)
