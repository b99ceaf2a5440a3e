"""DataChannel beside `ray.util.queue.Queue` and the least that sockets and shared memory allow.

    python benchmarks/job_channel.py [--rounds 5] [--no-ray]

A producer and a consumer, each a process, pass on records of 1 KB (bytes) and of 1 MB (arrays), one
by one; the consumer looks at both ends of each. All are connected when the time begins. What the
others are:

    ray      its queue, used as it is meant to be, one by one, from a driver to an actor
    floor    what any path of this kind has to do: three processes, of which the one in the middle
             only hands bytes on; every record is pickled and loaded again. 1 KB: frames of 16 over
             unix sockets, at most 64 records on their way. 1 MB: the array is copied once, into one
             of 16 slots of shared memory that are mapped beforehand; its pickle without the bytes
             (dtype, shape) goes over the sockets with the slot's number, and the slot comes back
             when it was looked at. A wake-up for each record
    bare     less than that. 1 KB: frames of 256 and hardly a bound. 1 MB: nobody in the middle and
             nothing pickled: both sides know the array, the number of a slot is all that is told

Nothing of these is leased, acked, kept for a death or sent again. Rounds of all take turns; shown
are medians of the rates, and of the ratios within a round, since the load changes between rounds.
Where others use the cores, too, rates tell mostly who waits for them: `cpu us` is the time of all
processes for a record, which depends on that much less.
"""

import argparse
import contextlib
import json
import mmap
import multiprocessing
import os
import pickle
import resource
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import results
from folkmoot.unified.channel import Broker, ChannelRules, DataChannel

SECRET = b"of this benchmark only"
KB, MB = 1024, 1024 * 1024
BATCH, SMALL_BATCH, SLOTS = 256, 16, 16
COUNTS = {KB: 40_000, MB: 2400}
RAY_COUNTS = {KB: 300, MB: 60}
CHANNEL = {KB: ChannelRules(records=4096), MB: ChannelRules(records=SLOTS, size=SLOTS * 2 * MB)}
GOALS = {KB: 20.0, MB: 2.0}
FLOOR_GOAL = 1.5
fork = multiprocessing.get_context("fork")
Part = Callable[[], Iterator[None]]  # yields when it is connected, and then does its work


def record(size: int) -> Any:
    return os.urandom(size) if size == KB else np.random.default_rng(1).integers(0, 255, size, "u1")


def look(record: Any) -> int:
    """What a consumer does with a record: that it is there, at both ends."""
    return int(record[0]) + int(record[-1])


def timed(count: int, parts: list[Part], consume: Part) -> float:
    """Records a second, from the moment when all are there until the consumer has them."""
    ready, told = fork.Barrier(len(parts) + 1), fork.SimpleQueue()

    def run(part: Part, last: bool) -> None:
        work = part()
        next(work)
        ready.wait()
        began = time.monotonic()
        for _ in work:
            raise AssertionError("a part is ready once")
        if last:
            told.put(time.monotonic() - began)

    processes = [fork.Process(target=run, args=(part, False)) for part in parts]
    processes.append(fork.Process(target=run, args=(consume, True)))
    for process in processes:
        process.start()
    seconds: float = told.get()
    for process in processes:
        process.join()
    return count / seconds


def channel(size: int, count: int) -> float:
    """Ours: the broker is a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hear, tell = fork.Pipe()
        broker = fork.Process(target=hold, args=(folder, CHANNEL[size], tell))
        broker.start()
        address = hear.recv()

        def end() -> DataChannel:
            return DataChannel("bench", address, SECRET)

        one = record(size)

        def produce() -> Iterator[None]:
            channel = end()
            assert channel.next_number == 1  # which the broker says
            yield
            for _ in range(count):
                channel.put(one)
            channel.finish()

        def consume() -> Iterator[None]:
            channel = end()
            with contextlib.suppress(TimeoutError):
                channel.get(timeout=0)
            yield
            for batch in channel.batches(BATCH):
                for one in batch:
                    look(one)

        try:
            return timed(count, [produce], consume)
        finally:
            hear.send("end")
            broker.join()


def hold(folder: Path, rules: ChannelRules, tell: Any) -> None:
    with Broker(folder, SECRET, {"bench": rules}) as broker:
        tell.send(broker.listen(f"unix:{folder}/socket"))
        tell.recv()


def sockets(size: int, count: int, batch: int = SMALL_BATCH, window: int = 64) -> float:
    """The floor for small records: at most `window` are on each half of their way."""
    (there, middle), (onward, here) = socket.socketpair(), socket.socketpair()
    for stream in (there, middle, onward, here):
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, MB)
    one, frames, ahead = record(size), count // batch, window // batch

    def produce() -> Iterator[None]:
        yield
        for number in range(frames):
            pickles = [pickle.dumps(one, 5) for _ in range(batch)]
            sizes = struct.pack(f"<{batch}I", *map(len, pickles))
            body = b"".join([sizes, *pickles])
            if number >= ahead:
                there.recv(1)
            there.sendall(struct.pack("<I", len(body)) + body)

    def relay() -> Iterator[None]:
        yield
        for number in range(frames):
            head = receive(middle, 4)
            body = receive(middle, struct.unpack("<I", head)[0])
            if number >= ahead:
                onward.recv(1)
            onward.sendall(head + body)
            middle.sendall(b"\0")

    def consume() -> Iterator[None]:
        yield
        for _ in range(frames):
            body = memoryview(receive(here, struct.unpack("<I", receive(here, 4))[0]))
            at = 4 * batch
            for length in struct.unpack_from(f"<{batch}I", body):
                look(pickle.loads(body[at : at + length]))
                at += length
            here.sendall(b"\0")

    return timed(frames * batch, [produce, relay], consume)


def bare_sockets(size: int, count: int) -> float:
    return sockets(size, count, BATCH, 8 * BATCH)


def receive(stream: socket.socket, count: int) -> bytearray:
    buffer = bytearray(count)
    view = memoryview(buffer)
    while view:
        view = view[stream.recv_into(view) :]
    return buffer


def shared_memory(size: int, count: int) -> float:
    """The floor for large records: a slot of a ring and a pickle, through one in the middle."""
    memory = mmap.mmap(-1, SLOTS * size)
    (ours, near), (far, theirs) = socket.socketpair(), socket.socketpair()
    one = record(size)

    def produce() -> Iterator[None]:
        slots = np.frombuffer(memory, np.uint8).reshape(SLOTS, size)
        yield
        for number in range(count):
            arrays: list[pickle.PickleBuffer] = []
            head = pickle.dumps(one, 5, buffer_callback=arrays.append)
            slot = number if number < SLOTS else ours.recv(1)[0]
            slots[slot] = arrays[0]
            ours.sendall(struct.pack("<BI", slot, len(head)) + head)

    def relay() -> Iterator[None]:
        yield
        pass_on(near, far, count)

    def consume() -> Iterator[None]:
        slots = np.frombuffer(memory, np.uint8).reshape(SLOTS, size)
        yield
        for _ in range(count):
            slot, length = struct.unpack("<BI", receive(theirs, 5))
            look(pickle.loads(receive(theirs, length), buffers=[slots[slot]]))
            theirs.sendall(bytes([slot]))

    return timed(count, [produce, relay], consume)


def pass_on(one: socket.socket, other: socket.socket, count: int) -> None:
    """Bytes from each to the other, until so many slots came back."""
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ, other)
        selector.register(other, selectors.EVENT_READ, one)
        while count > 0:
            for key, _ in selector.select():
                told = key.fileobj.recv(KB * 64)  # type: ignore[union-attr]
                key.data.sendall(told)
                count -= len(told) if key.fileobj is other else 0


def bare_shared_memory(size: int, count: int) -> float:
    """Slots alone, from one to the other."""
    memory = mmap.mmap(-1, SLOTS * size)
    ours, theirs = socket.socketpair()
    one = record(size)

    def produce() -> Iterator[None]:
        slots = np.frombuffer(memory, np.uint8).reshape(SLOTS, size)
        yield
        for number in range(count):
            slot = number if number < SLOTS else ours.recv(1)[0]
            slots[slot] = one
            ours.sendall(bytes([slot]))

    def consume() -> Iterator[None]:
        slots = np.frombuffer(memory, np.uint8).reshape(SLOTS, size)
        yield
        for _ in range(count):
            slot = theirs.recv(1)
            look(slots[slot[0]])
            theirs.sendall(slot)

    return timed(count, [produce], consume)


class Ray:
    """Its queue, in a process of its own: a driver that puts, an actor that gets."""

    def __init__(self) -> None:
        command, pipe = [sys.executable, __file__, "--ray"], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def __call__(self, size: int, count: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(size, count, file=self._process.stdin, flush=True)
        return float(json.loads(self._process.stdout.readline()))

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve_ray() -> None:
    import ray
    from ray.util.queue import Queue

    out = os.dup(1)
    os.dup2(2, 1)
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False)

    @ray.remote(num_cpus=0)
    class Consumer:
        def consume(self, queue: Any, count: int) -> float:
            look(queue.get())  # once before the time is taken: workers start
            began = time.monotonic()
            for _ in range(count):
                look(queue.get())
            return time.monotonic() - began

    consumer = Consumer.remote()
    for line in sys.stdin:
        size, count = map(int, line.split())
        queue, one = Queue(maxsize=64, actor_options={"num_cpus": 0}), record(size)
        taking = consumer.consume.remote(queue, count)
        for _ in range(count + 1):
            queue.put(one)
        os.write(out, f"{count / ray.get(taking)}\n".encode())
        queue.shutdown()
    ray.shutdown()


def measure(rounds: int, with_ray: bool) -> dict[str, dict[str, float]]:
    others: dict[str, Any] = {"ray": Ray()} if with_ray else {}
    found = {
        "1 KB": rate_all(KB, rounds, {**others, "floor": sockets, "bare": bare_sockets}),
        "1 MB": rate_all(
            MB, rounds, {**others, "floor": shared_memory, "bare": bare_shared_memory}
        ),
    }
    if with_ray:
        others["ray"].end()
    return found


def rate_all(size: int, rounds: int, others: dict[str, Any]) -> dict[str, float]:
    """Medians of records a second, and of how many times as fast as ours others are."""
    rates: dict[str, list[float]] = {name: [] for name in ("ours", *others)}
    spent: dict[str, list[float]] = {name: [] for name in ("ours", "floor", "bare")}
    for _ in range(rounds):
        for name, run in {"ours": channel, **others}.items():
            counts, before = RAY_COUNTS if name == "ray" else COUNTS, cpu_seconds()
            rates[name].append(run(size, counts[size]))
            if name in spent:
                spent[name].append((cpu_seconds() - before) / counts[size])
    found = {name: median(some) for name, some in rates.items()}
    for name in others:
        pairs = zip(rates[name], rates["ours"], strict=True)
        found[f"{name}/ours"] = median(theirs / ours for theirs, ours in pairs)
    found |= {f"cpu us {name}": 1e6 * median(some) for name, some in spent.items()}
    return {**found, "load": os.getloadavg()[0]}


def cpu_seconds() -> float:
    """Of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--ray", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ray:
        return serve_ray()
    found = measure(options.rounds, not options.no_ray)
    for name, size in (("1 KB", KB), ("1 MB", MB)):
        figures = found[name]
        print(name, "  ".join(f"{what} {figure:,.3g}" for what, figure in figures.items()))
        met = results.GOALS[figures["floor/ours"] <= FLOOR_GOAL]
        print(f"  goal: the floor is at most {FLOOR_GOAL} times as fast: {met}")
        if "ray" in figures:
            met = results.GOALS[1 / figures["ray/ours"] >= GOALS[size]]
            print(f"  goal: {GOALS[size]:.0f} times Ray's queue or more: {met}")
    if options.rounds == parser.get_default("rounds") and not options.no_ray:
        rounded = {
            name: {what: results.significant(figure) for what, figure in figures.items()}
            for name, figures in found.items()
        }
        results.write("job_channel", "python benchmarks/job_channel.py", rounded)
    return None


if __name__ == "__main__":
    main()
