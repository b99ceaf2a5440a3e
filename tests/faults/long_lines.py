"""A switch whose lines are long and bad: every frame comes late, and some never.

The kernel's netem would do it where it is built in. A TAP device is everywhere, also inside a
network namespace: its other end is a file of ours.
"""

import fcntl
import heapq
import os
import random
import select
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

TUN = "/dev/net/tun"
TUNSETIFF = 0x400454CA
TAP, NO_PACKET_INFO = 0x0002, 0x1000
LARGEST_FRAME = 2048


class Switch:
    """`line` gives a device with this name; what is sent there reaches the others later."""

    def __init__(self, delay: float, loss: float, seed: int = 1) -> None:
        self.delay, self.loss = delay, loss
        self.passed = self.lost = 0
        self._chance = random.Random(seed)
        self._lines: list[int] = []
        self._at: dict[bytes, int] = {}  # behind which line an address is
        self._on_the_way: list[tuple[float, int, int, bytes]] = []
        self._number = count()

    def line(self, device: str) -> None:
        line = os.open(TUN, os.O_RDWR | os.O_NONBLOCK)
        self._lines.append(line)
        fcntl.ioctl(line, TUNSETIFF, struct.pack("16sH", device.encode(), TAP | NO_PACKET_INFO))

    def close(self) -> None:
        for line in self._lines:
            os.close(line)

    def run(self, ended: int) -> None:
        """Until something is written to `ended`."""
        while True:
            wait = self._on_the_way[0][0] - time.monotonic() if self._on_the_way else None
            ready, _, _ = select.select([ended, *self._lines], [], [], wait and max(0.0, wait))
            if ended in ready:
                return
            for line in ready:
                self._take(line, os.read(line, LARGEST_FRAME))
            while self._on_the_way and self._on_the_way[0][0] <= time.monotonic():
                _, _, line, frame = heapq.heappop(self._on_the_way)
                os.write(line, frame)

    def _take(self, line: int, frame: bytes) -> None:
        to, of = frame[:6], frame[6:12]
        self._at[of] = line
        if self._chance.random() < self.loss:
            self.lost += 1
            return
        self.passed += 1
        known = self._at.get(to)
        others = [known] if known else [other for other in self._lines if other != line]
        due = time.monotonic() + self.delay
        for other in others:
            heapq.heappush(self._on_the_way, (due, next(self._number), other, frame))


@contextmanager
def running(switch: Switch) -> Iterator[None]:
    heard, ended = os.pipe()
    thread = threading.Thread(target=switch.run, args=(heard,), name="switch")
    thread.start()
    try:
        yield
    finally:
        os.write(ended, b"!")
        thread.join()
        switch.close()
        os.close(heard)
        os.close(ended)
